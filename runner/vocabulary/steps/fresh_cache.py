"""``fresh_cache``: switches inductor to an empty cache folder."""

import os
from dataclasses import dataclass
from typing import ClassVar

from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.session import Session


def run(session: Session, arguments: "FreshCache") -> None:
    """Use the next folder."""
    number = session.kept[FreshCache.kind] = session.kept.get(FreshCache.kind, 0) + 1
    session.torch.reset_inductor()
    session.torch.use_cache_dir(os.path.join(session.cache, f"fresh-{number}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshCache(StepKind):
    """``fresh_cache: {}``."""

    kind: ClassVar[str] = "fresh_cache"
    runs = staticmethod(run)

"""``delete_modules``: deletes the files of generated modules, so that a later cache hit must write them again."""

from dataclasses import dataclass
from typing import ClassVar

from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.session import Session


def run(session: Session, arguments: "DeleteModules") -> None:
    """Delete them; raise ``RuntimeError`` where there are none."""
    if session.torch.delete_generated_files() == 0:
        raise RuntimeError("no generated module was loaded: nothing was deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteModules(StepKind):
    """``delete_modules: {}``."""

    kind: ClassVar[str] = "delete_modules"
    runs = staticmethod(run)

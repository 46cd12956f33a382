"""Which of the cases: by backend, by glob on ids, by shard. Only ``*`` and ``?`` are special in a glob, so that an id selects itself."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner.diagnostics import UsageError, unknown
from runner.language.backends import Backends
from runner.model import Case


@dataclass(frozen=True, slots=True)
class Shard:
    """The ``index``-th of ``count`` parts, from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read ``I/N``; raise ``UsageError``."""
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"'{text}' is no shard: write I/N with I from 1 to N, for example 2/4")
        return cls(int(match[1]), int(match[2]))

    def holds(self, case: Case) -> bool:
        """Whether the case belongs to this part: by its id alone, so that other cases do not move it."""
        import hashlib  # loads OpenSSL: not for commands that do not shard

        number = int.from_bytes(hashlib.sha256(case.id.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        return number % self.count == self.index - 1


def glob(pattern: str) -> re.Pattern[str]:
    """Return the expression of a glob over ids."""
    pieces = [{"*": ".*", "?": "."}.get(character) or re.escape(character) for character in pattern]
    return re.compile("".join(pieces), re.DOTALL)


def select(
    cases: Sequence[Case], backends: Backends, *, names: Sequence[str] = (), globs: Sequence[str] = (), shard: Shard | None = None
) -> list[Case]:
    """Return the cases that every given criterion lets through; raise ``UsageError`` for a backend that does not exist."""
    for name in names:
        if name not in backends.by_name:
            message, hint = unknown("backend", name, backends.by_name)
            raise UsageError(f"{message} ({hint})")
    patterns = [glob(pattern) for pattern in globs]
    found = [case for case in cases if not names or case.backend in names]
    found = [case for case in found if not patterns or any(pattern.fullmatch(case.id) for pattern in patterns)]
    return [case for case in found if shard is None or shard.holds(case)]


def why_nothing_selected(read: int, *, names: Sequence[str], globs: Sequence[str], shard: str | None, of: int | None = None) -> str:
    """Say why no case is selected: ``read`` were read, and ``of`` so many selected before the shard was taken, where that is known."""
    if not read:
        return "no case is selected: the files that were read hold none"
    if of and shard:
        return f"no case is selected: none of the {of} selected cases falls to shard {shard}; its run is recorded, so that it can be merged"
    given = [*(f"--backend {name}" for name in names), *(f"--select {glob}" for glob in globs), *([f"--shard {shard}"] if shard else [])]
    return f"no case is selected: none of the {read} cases that were read matches {' '.join(given) or 'the paths'} ('list' shows them)"

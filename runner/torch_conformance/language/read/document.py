"""A parsed YAML file: its data, and the position of every key and value; and the kinds of such
files.

Diagnostics quote the contents of files that are recognised as one of the kinds: keys, values,
Python. Any other file may contain secrets, so its diagnostics name only a position and a kind of
problem.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch_conformance.model.diagnostics import Diagnostic, Position
from torch_conformance.model.problem_texts import KINDS

DataPath = tuple[str | int, ...]

BESIDE_KIND = ("expect", "when", "repeat")
"""The keys of a step beside its kind."""


class Mark(NamedTuple):
    """The position of a value (line and column from 1) and, for a scalar, its text and style in the
    file.
    """

    line: int
    column: int
    raw: str | None = None
    style: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """A YAML file as data, compared by identity.

    ``marks`` and ``key_marks`` are keyed by the path of keys and indices to a value.
    """

    path: Path
    file: str
    data: Any
    marks: dict[DataPath, Mark]
    key_marks: dict[DataPath, Mark]
    content: bytes = b""
    """The file's bytes."""
    problems: tuple[Diagnostic, ...] = ()
    """Parts that could not be read; ``data`` is the rest."""
    unread: tuple[DataPath, ...] = ()
    """Paths of values that could not be read."""
    origins: Mapping[DataPath, tuple["Document", DataPath]] = field(default_factory=dict)
    """Where parts of ``data`` were read, of those that this file does not have at their paths."""
    rows: tuple["Document", ...] = ()
    """The files of rows that this file names: ``data`` has what they hold."""
    is_whole: bool = True
    """False if the file could be parsed only in part: ``data`` has the complete top-level keys
    before that place.
    """

    @property
    def digest(self) -> str:
        """The sha256 of the file."""
        import hashlib

        return hashlib.sha256(self.content).hexdigest()

    def position(self, path: DataPath, *, key: bool = False) -> Position:
        """Return the position of ``path``, or of the nearest enclosing value if it has none."""
        source, place = self.origin(path)
        if source is not self:
            return source.position(place, key=key)
        for end in range(len(path), -1, -1):
            table = self.key_marks if key and end == len(path) else self.marks
            if (mark := table.get(path[:end]) or self.marks.get(path[:end])) is not None:
                return Position(file=self.file, line=mark.line, column=mark.column)
        return Position(file=self.file)

    def origin(self, path: DataPath) -> tuple["Document", DataPath]:
        """Return the file that the value at ``path`` was read from, and its path there."""
        for end in range(len(path), 0, -1) if self.origins else ():
            if (origin := self.origins.get(path[:end])) is not None:
                return origin[0], (*origin[1], *path[end:])
        return self, path

    def value(self, path: DataPath) -> Any:
        """Return the value at ``path``."""
        value = self.data
        for key in path:
            value = value[key]
        return value

    def diagnostic(
        self,
        path: DataPath,
        problem: Diagnostic | str,
        /,
        *,
        key: bool = False,
        **arguments: str | int,
    ) -> Diagnostic:
        """Return a problem, or that of a code, at ``path`` (at its key when ``key``)."""
        unplaced = Diagnostic.of(problem, **arguments) if isinstance(problem, str) else problem
        return unplaced.at(self.position(path, key=key))

    def problem(
        self,
        path: DataPath,
        message: str,
        hint: str = "",
        *,
        key: bool = False,
        code: str = "meaning",
    ) -> Diagnostic:
        """Return a problem whose text is that of another part of the program, as ``diagnostic``
        does.
        """
        return self.diagnostic(path, code, key=key, message=message, hint=hint)


def walk(value: Any, path: DataPath = ()) -> list[tuple[DataPath, Any]]:
    """Return the path and the value of everything in plain data, the outer before the inner."""
    places = [(path, value)]
    for place, item in places:
        if isinstance(item, dict):
            places.extend([((*place, key), inner) for key, inner in item.items()])
        elif isinstance(item, list):
            places.extend([((*place, index), inner) for index, inner in enumerate(item)])
    return places


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return plain data in which everything that is no list and no map is changed."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return [mapped(item, change) for item in value] if isinstance(value, list) else change(value)


# -- kinds -----------------------------------------------------------------------------------------


_TOP_KEY = re.compile(r"""^["']?([A-Za-z_]\w*)["']?[ \t]*:(?=\s|$)""", re.MULTILINE)
_ANY_KEY = re.compile(r"""(?:^|[\s{,])["']?([A-Za-z_]\w*)["']?[ \t]*:(?=\s|$)""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of file.

    A file is recognised by at least ``least`` of its ``keys``, one of them in ``marks``.
    """

    name: str
    """The name of its schema, and of what it is in texts."""
    keys: frozenset[str]
    marks: frozenset[str]
    """Keys that are rare in files of other tools."""
    least: int = 2
    anywhere: bool = False
    """Whether keys count at any depth instead of only at the top."""
    file_name: str = ""
    """The fixed name of files of this kind.

    A file with this name needs only one mark, or only keys that are similar to ``keys``.
    """
    mistaken: frozenset[str] = frozenset()
    """Keys of another kind of file that people write into a file with this name."""

    @property
    def article(self) -> str:
        """It with its article, for texts: ``a spec``."""
        return KINDS[self.name][0]

    @property
    def form(self) -> str:
        """How such a file looks, for texts."""
        return KINDS[self.name][1]

    def recognises(self, text: str, file_name: str = "", data: Any = None) -> bool:
        """Whether a file is of this kind: by its parsed keys, or else by the keys found in its
        text.
        """
        pattern = _ANY_KEY if self.anywhere else _TOP_KEY
        keys = (
            set(map(str, data))
            if isinstance(data, dict) and not self.anywhere
            else set(pattern.findall(text))
        )
        marked = bool(keys & self.marks)
        if marked and len(keys & self.keys) >= self.least:
            return True
        if not self.file_name or file_name != self.file_name or not keys:
            return False
        return (
            marked
            or bool(keys & self.mistaken)
            or all(difflib.get_close_matches(key, self.keys, n=1, cutoff=0.8) for key in keys)
        )


SPEC = Kind(
    name="spec",
    keys=frozenset(
        [
            "summary",
            "covers",
            "tags",
            "backends",
            "matrix",
            "exclude",
            "include",
            "requires",
            "config",
            "dynamo_config",
            "functorch_config",
            "env",
        ]
        + [
            "torch",
            "context",
            "prelude",
            "entry",
            "function",
            "functions",
            "let",
            "spies",
            "handlers",
            "inputs",
            "compile",
            "steps",
        ]
        + ["expect", "control", "services", "isolation", "timeout", "exclusive", "group", "retries"]
        + ["on_request", "source", "targets", "triton"]
    ),
    marks=frozenset(
        ["summary", "covers", "backends", "prelude", "function", "functions", "expect", "targets"]
    ),
)
_DEFAULTS = frozenset(
    [
        "config",
        "dynamo_config",
        "functorch_config",
        "torch",
        "isolation",
        "context",
        "tags",
        "prelude",
        "groups",
    ]
)
DEFAULTS = Kind(
    name="defaults",
    keys=_DEFAULTS,
    marks=_DEFAULTS - {"tags", "context"},
    mistaken=SPEC.keys - _DEFAULTS,
    file_name="_defaults.yaml",
)
BACKENDS = Kind(
    name="backends",
    keys=frozenset(
        ["summary", "device", "joins", "only_tags", "requires", "config", "compiles", "proof"]
    ),
    marks=frozenset(["device", "joins", "only_tags", "compiles", "proof"]),
    anywhere=True,
)
_DTYPES = frozenset(
    "bool bfloat16 float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 "
    "uint16 uint32 uint64".split()
)
CLAIMS = Kind(name="claims", keys=_DTYPES, marks=_DTYPES, least=1, file_name="claims.yaml")
EXPECTED = Kind(name="expected", keys=_DTYPES, marks=_DTYPES, least=1, file_name="expected.yaml")
WAIVERS = Kind(
    name="waivers",
    keys=frozenset(["waivers", "cases", "failure", "reason", "issue", "until", "flaky"]),
    marks=frozenset(["waivers", "cases", "failure"]),
    anywhere=True,
    file_name="waivers.yaml",
)
PROFILE = Kind(
    name="profile",
    keys=frozenset(
        [
            "profile",
            "version",
            "summary",
            "torch",
            "specs",
            "backends",
            "backend",
            "waivers",
            "levels",
        ]
    ),
    marks=frozenset(["profile", "levels"]),
)
SETTINGS = Kind(
    name="conformance",
    keys=frozenset(["paths", "backends", "waivers", "profile"]),
    marks=frozenset(["paths", "waivers", "profile"]),
    least=1,
    file_name="conformance.yaml",
)
ROWS = Kind(name="rows", keys=frozenset(), marks=frozenset())
"""It has any keys, so that its problems quote nothing."""
LAB = Kind(
    name="lab", keys=frozenset(["lab", "nodes"]), marks=frozenset(["lab"]), file_name="lab.yaml"
)

"""The kinds of YAML files, and walks over their data.

Diagnostics quote the contents of files that are recognised as one of the kinds: keys, values,
Python. Any other file may contain secrets, so its diagnostics name only a position and a kind of
problem.
"""

import difflib
import re
from collections.abc import Callable
from typing import Any

from torch_conformance.model.document import DataPath
from torch_conformance.model.problem_texts import KINDS
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen

KEYS_OF_STEPS = ("expect", "when", "repeat")
"""The keys that a step of any kind may have; its other key is its kind."""


def walk(value: object, path: DataPath = ()) -> list[tuple[DataPath, Any]]:
    """Return the path and the value of everything in plain data, the outer before the inner."""
    places = [(path, value)]
    for place, item in places:
        if isinstance(item, dict):
            places.extend([((*place, key), inner) for key, inner in item.items()])
        elif isinstance(item, list):
            places.extend([((*place, index), inner) for index, inner in enumerate(item)])
    return places


def mapped(value: object, change: Callable[[Any], Any]) -> Json:
    """Return plain data with each leaf changed: each value that is neither a list nor a map."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return [mapped(item, change) for item in value] if isinstance(value, list) else change(value)


# -- kinds -----------------------------------------------------------------------------------------


_TOP_KEY = re.compile(r"""^["']?([A-Za-z_]\w*)["']?[ \t]*:(?=\s|$)""", re.MULTILINE)
_ANY_KEY = re.compile(r"""(?:^|[\s{,])["']?([A-Za-z_]\w*)["']?[ \t]*:(?=\s|$)""", re.MULTILINE)


@frozen
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

    def recognises(self, text: str, file_name: str = "", data: object = None) -> bool:
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
        "summary covers tags backends matrix exclude include requires config dynamo_config "
        "functorch_config env torch context prelude entry function functions let spies handlers "
        "inputs compile steps expect control services isolation timeout exclusive group retries "
        "on_request source targets triton".split()
    ),
    marks=frozenset("summary covers backends prelude function functions expect targets".split()),
)
_DEFAULTS = frozenset(
    "config dynamo_config functorch_config torch isolation context tags prelude groups".split()
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
    keys=frozenset("summary device joins only_tags requires config compiles proof".split()),
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
    keys=frozenset("waivers cases failure reason issue until flaky".split()),
    marks=frozenset(["waivers", "cases", "failure"]),
    anywhere=True,
    file_name="waivers.yaml",
)
PROFILE = Kind(
    name="profile",
    keys=frozenset("profile version summary torch specs backends backend waivers levels".split()),
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

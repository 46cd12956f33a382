"""Words that no generated code can have, in the worker: a ``CHECK-NOT`` of one holds whatever the code is."""

import functools
import itertools
import json
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.model.protocol import Json


@functools.cache
def trivial_code() -> Mapping[str, list[str]]:
    """Return the code of two trivial functions by device, or by vendor and stage, and two graphs by stage (``tools/trivial_code.py``)."""
    known: Mapping[str, list[str]] = json.loads(Path(__file__).with_name("trivial_code.json").read_text(encoding="utf-8"))
    return known


_TEXTS = (".py", ".jinja", ".h", ".cpp")


def measure_words(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Return which of the forbidden words nothing emits."""
    return {"unknown": unknown(arguments["words"])}


def unknown(words: Sequence[str]) -> list[str]:
    """Return the words that are no part of torch's code generators, of the spec's Python, of an operator's name, or of a loaded package.

    Names of kernels are composed, so that a word with underscores is known where the name of an operator has each of its parts.
    """
    rest = set(words)
    for text in _texts():
        rest = {word for word in rest if word not in text}
        if not rest:
            return []
    operators = _operators()
    return [word for word in words if word in rest and ("_" not in word or not all(part in operators for part in word.split("_")))]


def _operators() -> str:
    """Return the names of torch's operators, and the code of trivial functions, which has what else the names of kernels are made of."""
    declared = (_packages() / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml").read_text("utf-8")
    return "\n".join([*re.findall(r"^- func: (\w+)", declared, re.MULTILINE), *itertools.chain(*trivial_code().values())])


def _packages() -> Path:
    return Path(str(sys.modules["torch"].__file__)).parents[1]


def _texts() -> Iterator[str]:
    """Yield the texts that are read before most words are found first."""
    for known in list(linecache.cache.values()):
        yield "".join(known[2]) if len(known) > 2 else ""
    yield _operators()
    generators = _packages() / "torch" / "_inductor"
    files = {path: None for path in (generators / "codegen", generators) for path in path.rglob("*") if path.suffix in _TEXTS}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and name.partition(".")[0] not in ("runner", "__main__", "__mp_main__"):
            files.setdefault(Path(file))
    for path in files:
        try:
            yield path.read_text("utf-8", "replace")
        except OSError:
            continue


def words_of(text: str) -> list[str]:
    """Return the words of a text, without digits."""
    return [word for word in re.findall(r"[A-Za-z_]+", text) if len(word.strip("_")) >= _SHORTEST]


_SHORTEST = 3
"""Letters of a word that says something."""

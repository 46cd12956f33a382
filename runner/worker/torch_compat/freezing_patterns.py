"""The patterns that torch registers at the first compile with freezing of a process."""

import contextlib
import importlib
import sys
from typing import Any

_PASSES = "torch._inductor.fx_passes"

_TABLES = ("pass_patterns", "binary_folding_pass")
"""Tables of ``freezing_patterns`` that only freezing applies: a list of passes, and a pass."""

_ONCE = (
    ("freezing_patterns", "lazy_init"),
    ("freezing_patterns", "addmm_patterns_init"),
    ("binary_folding", "binary_folding_init"),
    ("mkldnn_fusion", "_mkldnn_weight_pack_init"),
    ("quantization", "_register_quantization_weight_pack_pass"),
)
"""Module and name of the cached functions that fill these tables, once in a process."""


class FreezingPatterns:
    """The content of these tables at the time of construction.

    Which patterns torch registers depends on options of the compile, such as ``cpp.weight_prepack``. So they are not registered in advance
    for a shared worker: they are removed after each case, and the next case with freezing registers its own, as in a process of its own.
    """

    def __init__(self) -> None:
        for module in {module for module, _ in _ONCE}:
            with contextlib.suppress(ImportError):  # mkldnn_fusion and quantization register patterns on import, which stay
                importlib.import_module(f"{_PASSES}.{module}")
        self._lists = [(held, list(held)) for held in map(_table, _TABLES) if type(held) is list]
        passes = [*(one for held, _ in self._lists for one in held), _table("binary_folding_pass")]
        self._entries = [(table, _copy(table)) for one in passes for table in _entries(one)]
        self._fresh = [cache for module, name in _ONCE if (cache := _cache(module, name)) is not None and cache.cache_info().currsize == 0]

    def set_back(self) -> None:
        """Restore the tables, so that torch fills them again at the next compile with freezing."""
        for held, passes in self._lists:
            held[:] = passes
        for table, content in self._entries:
            if table != content:
                table.clear()
                table.update(_copy(content))
        for cache in self._fresh:
            cache.cache_clear()


def _table(name: str) -> Any:
    return getattr(sys.modules.get(f"{_PASSES}.freezing_patterns"), name, None)


def _entries(one: Any) -> list[dict[Any, list[Any]]]:
    """Return the two tables of a pass: its patterns, and the texts by which it finds repeated ones."""
    return [table for name in ("patterns", "seen_patterns") if isinstance(table := getattr(one, name, None), dict)]


def _copy(table: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    return {key: list(entries) for key, entries in table.items()}


def _cache(module: str, name: str) -> Any:
    found = getattr(sys.modules.get(f"{_PASSES}.{module}"), name, None)
    return found if hasattr(found, "cache_clear") else None

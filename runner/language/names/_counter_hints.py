"""Hints for names of counters that are unknown, or that resemble a known one."""

import difflib
from collections.abc import Iterable, Mapping

from runner.core.diagnostics import one_of
from runner.language.names._name_table import CounterNames


def counter_hint(name: str, counters: Mapping[str, CounterNames], metrics: Iterable[str]) -> str:
    """Return what was probably meant by a name that no table has as a counter."""
    space, _, bare = name.partition(".")
    if not bare and space in counters:
        return f"'{space}' is a namespace: write {space}.NAME"
    if not bare and name in metrics:
        return f"'{name}' is a metric"
    meant = _meant_counter(space, bare, counters) if bare else _meant_counter("", name, counters)
    if meant:
        return f"did you mean '{meant}'?"
    if space in counters:
        return f"known in {space}: {one_of(counters[space].names)}"
    return f"namespaces: {one_of(counters)}"


def likely_typo(name: str, counters: Mapping[str, CounterNames]) -> str:
    """Return a hint if a name that matches a pattern resembles a listed counter: ``batch_layernrm`` matches ``batch_.+``."""
    space, _, bare = name.partition(".")
    near = _nearest(bare, sorted(counters[space].names), cutoff=0.9) if space in counters else None
    return f"did you mean '{space}.{near}'?" if near else ""


def _meant_counter(space: str, bare: str, counters: Mapping[str, CounterNames]) -> str | None:
    """Return the counter that was probably meant: the namespace, the name, or both may be wrong."""
    homes = [f"{other}.{bare}" for other in counters if bare in counters[other].names]
    if homes:
        return _nearest(f"{space}.{bare}", homes, cutoff=0.0)
    other = space if space in counters else _nearest(space, counters)
    if other:
        if other != space and counters[other].matches(bare):
            return f"{other}.{bare}"
        near = _nearest(bare, sorted(counters[other].names))
        return f"{other}.{near}" if near else None
    by_name = {near: other for other in counters for near in counters[other].names}
    near = _nearest(bare, sorted(by_name))
    return f"{by_name[near]}.{near}" if near else None


def _nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)), None)

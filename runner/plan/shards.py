"""The shards of a selection: by a hash of the ids alone, or by labels, so that the cases of a shard need the same of their machine."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.core.case import Case
from runner.core.diagnostics import UsageError
from runner.plan.selection import Shard

BY_ID = "id"
BY_LABEL = "label"
NO_LABEL = "anything"
"""The label of cases that require nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelShard:
    """One shard: the ``index``-th of those of a label, from 1."""

    label: str
    index: int
    count: int


def label_of(case: Case) -> str:
    """Return what a case requires of its machine, as text."""
    found = {f"{one.name} {one.argument}" if one.argument else one.name for one in case.requires}
    return ", ".join(sorted(found)) or NO_LABEL


def label_shards(cases: Sequence[Case], count: int) -> list[LabelShard]:
    """Return ``count`` shards: at least one for each label, and the others where the most cases are. The cases alone decide.

    Raise ``UsageError`` for fewer shards than labels.
    """
    sizes = Counter(label_of(case) for case in cases)
    if count < len(sizes):
        named = "; ".join(f"{label}: {size}" for label, size in sizes.most_common(3))
        raise UsageError(
            f"{count} shards by label: the selection has {len(sizes)} labels, which need as many ({named}; more shards, or by id)"
        )
    given = dict.fromkeys(sorted(sizes), 1)
    for _ in range(count - len(given) if given else 0):
        largest = max(given, key=lambda label: (sizes[label] / given[label], label))
        given[largest] += 1
    return [LabelShard(label=label, index=index, count=of) for label, of in given.items() for index in range(1, of + 1)]


def member_of(whole: Sequence[Case], shard: Shard, by: str) -> Callable[[Case], bool]:
    """Return whether a case of the whole selection belongs to a shard."""
    if by == BY_ID:
        return shard.holds
    mine = label_shards(whole, shard.count)[shard.index - 1]
    return lambda case: label_of(case) == mine.label and _number(case) % mine.count == mine.index - 1


def _number(case: Case) -> int:
    return int.from_bytes(hashlib.sha256(case.id.encode("utf-8", "surrogatepass")).digest()[:8], "big")

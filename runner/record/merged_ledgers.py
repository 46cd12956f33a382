"""The counts of ledgers of a merged run, from those of its shards."""

from collections import Counter
from collections.abc import Iterable, Sequence

from runner.core.header import LedgerCount

OTHER_SHARD = "not selected: another shard"
OF_ALL_SHARDS = ("not selected:", "lost:", "removed,")
"""How the reasons begin that hold for every shard alike: they are not added up."""


def merged_ledgers(shards: Iterable[Sequence[LedgerCount]]) -> tuple[LedgerCount, ...]:
    """Return one count for each ledger: what no shard executed, by reason."""
    by_file: dict[str, list[LedgerCount]] = {}
    for counts in shards:
        for count in counts:
            by_file.setdefault(count.file, []).append(count)
    return tuple(_joined(counts) for counts in by_file.values())


def _joined(counts: Sequence[LedgerCount]) -> LedgerCount:
    first = counts[0]
    reasons: Counter[str] = Counter()
    for count in counts:
        for reason, number in count.not_executed.items():
            if reason.startswith(OF_ALL_SHARDS):
                reasons[reason] = max(reasons[reason], number)
            else:
                reasons[reason] += number
    del reasons[OTHER_SHARD]
    executed = sum(count.executed for count in counts)
    return LedgerCount(file=first.file, cases=first.cases, executed=executed, not_executed=dict(reasons.most_common()))

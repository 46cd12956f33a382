"""Waivers that no longer excuse anything, and the patch that removes them. Pure.

| waiver                                                        | is removed |
|---------------------------------------------------------------|------------|
| its last day is past                                          | yes        |
| it is for none of the cases that were read                    | yes        |
| cases for which it is passed, and it matched no failure       | yes        |
| cases passed, and it matched the failure of others            | no: narrow its glob or its condition |
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.diagnostics import Position, UsageError
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, WaiverEffect
from runner.judge.waivers import Waivers, has_case
from runner.language.read.document import Document
from runner.language.waivers import Waiver


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidWaiver:
    """A waiver to remove, and why."""

    waiver: Waiver
    why: str


def void_waivers(waivers: Waivers, results: Iterable[CaseResult], ids: Sequence[str] | None = None) -> Iterator[VoidWaiver]:
    """Yield the waivers to remove. ``ids`` are all cases that were read; None where they are not known.

    A shipped waiver is not compared with ``ids``, because the run may have read other specs.
    """
    effects = _effects(results)
    for waiver in waivers.files.waivers:
        passed, matched = effects.get(waiver.position, (0, 0))
        if waivers.is_expired(waiver):
            yield VoidWaiver(waiver=waiver, why=f"ended on {waiver.until}")
        elif passed and not matched:
            yield VoidWaiver(waiver=waiver, why=f"{passed} of its cases passed, and no failure matched")
        elif ids is not None and waiver.position.file in waivers.files.given and not has_case(waiver, ids):
            yield VoidWaiver(waiver=waiver, why=f"is for none of the {len(ids)} cases")


def _effects(results: Iterable[CaseResult]) -> Mapping[Position, tuple[int, int]]:
    """Return for the place of each waiver how many cases passed in spite of it, and how many failed in any way."""
    counts: dict[Position, tuple[int, int]] = {}
    for result in results:
        for one in result.waivers:
            passed, failed = counts.get(one.position, (0, 0))
            if one.effect is WaiverEffect.PASSED and result.outcome is not Outcome.FLAKY:
                counts[one.position] = (passed + 1, failed)
            elif one.effect not in (WaiverEffect.EXPIRED, WaiverEffect.PART_PASSED):
                counts[one.position] = (passed, failed + 1)
    return counts


def patches(found: Sequence[VoidWaiver], documents: Iterable[Document]) -> Iterator[str]:
    """Yield the unified diff for each file, or a line that says why a file cannot be changed as text."""
    from runner.language.waiver_text import removal_patch  # only where there is something to remove

    for document in documents:
        lines = {one.waiver.position for one in found}
        indices = [index for index, _ in enumerate(document.data["waivers"]) if document.position(("waivers", index)) in lines]
        if indices:
            try:
                yield removal_patch(document, indices)
            except UsageError as error:
                yield f"{error}\n"


def lines_of(found: Sequence[VoidWaiver], documents: Iterable[Document]) -> list[str]:
    """Return the waivers to remove with the reasons, and the patch; nothing where there is none."""
    if not found:
        return []
    count = "1 waiver" if len(found) == 1 else f"{len(found)} waivers"
    reasons = [f"  {one.waiver.position}: {one.why} ({one.waiver.issue})" for one in found]
    diffs = [line for patch in patches(found, documents) for line in _shown(patch)]
    applied = "'waive RUN --remove' prints the patch for 'git apply', without waivers that are for no case"
    return [f"\n{count} to remove ({applied}):", *reasons, *diffs]


def _shown(patch: str) -> list[str]:
    """Return the lines of a patch for a report. Its first two are commands to a CI system, so the file is named in other words."""
    lines = patch.splitlines()
    return [f"in {lines[0].partition('/')[2]}:", *lines[2:]] if lines[0].startswith("--- ") else lines

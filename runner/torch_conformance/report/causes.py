"""Failures by their cause: reports that people read have one entry for each, and name the cases."""

import itertools
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import unquote

from torch_conformance.model.escaping import one_line
from torch_conformance.model.expectation import NO_EXCEPTION, Verdict
from torch_conformance.model.outcomes import RETRIED, JUnitTag, Outcome
from torch_conformance.model.results import PROOF, Redacted
from torch_conformance.report import weak_lines

_ADDRESS = "0x[0-9a-f]+"
_CHANGING = re.compile(
    rf"[\[({{][-+0-9.,e "
    rf"]*[\])}}]|{_ADDRESS}|(?<!float)(?<!int)(?<!complex)(?<![0-9])[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?"
    r"|\b(?:aten|prims?)(?:::|\.)\w+(?:\.\w+)*(?:', overload='\w+)?|(?:/[\w.+~-]+)+(?=/)"
)
"""What differs between exceptions of one cause: shapes, addresses, numbers (not those of types),
names of operators, folders.
"""

_FRAME = re.compile('File ".*(/torch/(_inductor/)?.*)", line .* in (.*)')

_ASSERTION = "AssertionError"

_FRAMES = 3
"""Frames of a stack that are equal where the cause is."""

_LONGEST = 10_000
"""Characters of a line of ids."""


def cause_of(result: Redacted) -> object:
    """Return what is equal of failures of one cause.

    One cause are: exceptions with one text, but for what changes from case to case, and one deepest
    frame of Inductor; assertions of one function of torch; calls that fell back with one text;
    answers that ATen computed; and otherwise failures of the same expectation with the same text.
    """
    failed = result.failed
    if result.outcome not in RETRIED or result.attempts or not failed:
        return result.case_id
    if result.outcome is Outcome.FELL_BACK:
        return result.outcome, result.backend, _without_changing(failed[0].observed)
    raised = [verdict for verdict in failed if verdict.kind != PROOF]
    if result.outcome is Outcome.FAIL and raised and all(map(has_raised, raised)):
        text, frames = raised[0].observed, _FRAME.findall(raised[0].detail)
        before, assertion, _ = text.partition(_ASSERTION)
        if assertion:  # where it is says which one it is; its text may name the nodes of the graph
            text = before
        else:
            frames = [frame for frame in frames if frame[1]]
        return result.outcome, result.backend, _without_changing(text), *frames[-1:]
    if failed[0].kind == "crash":  # the innermost frames of its stack say where
        frames = re.findall('File "(.*)", line .* in (.*)', failed[0].detail)
        spec = "" if frames and not frames[0][0].endswith(".yaml") else result.spec
        inner = [frame for frame in frames if not frame[0].endswith(".yaml")][:_FRAMES]
        text = _without_changing(failed[0].observed)
        return result.outcome, result.backend, spec, text, *inner
    has_details = result.outcome.junit is JUnitTag.ERROR
    details = [re.sub(_ADDRESS, "N", verdict.detail) if has_details else "" for verdict in failed]
    texts = [(verdict.kind, str(verdict.position), verdict.message) for verdict in failed]
    return result.outcome, result.spec, result.warnings, *texts, *details


def notes_of(result: Redacted) -> object:
    """Return the notes of a case, but for what changes from case to case; the id of a case with a
    weak expectation, which no other case shares.
    """
    return (
        result.case_id
        if weak_lines(result)
        else (result.flaky_waiver, *map(_without_changing, result.shown_notes))
    )


def causes(
    results: Iterable[Redacted], key: Callable[[Redacted], object] = cause_of
) -> list[list[Redacted]]:
    """Return failures by their cause, or cases by another key, in the order of the first of
    each.
    """
    groups: defaultdict[object, list[Redacted]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result)
    return list(groups.values())


def _without_changing(text: str) -> str:
    """Return a text with one letter for what changes from case to case, and for each list of it."""
    return re.sub(r"\bN(?:[, ]+N\b)+", "N", _CHANGING.sub("N", text))


def folded_ids(results: Iterable[Redacted]) -> Iterator[str]:
    """Yield the ids of cases; those that differ only in their operator on one line, with what ATen
    ran of each.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for result in results:
        if (operator := parts_of(result.case_id).get("op")) is None:
            groups[result.case_id] = []
        else:
            by_aten = f" ({', '.join(sorted(result.by_aten))})" if result.by_aten else ""
            groups[result.case_id.replace(f",op={operator},", ",op=*,")].append(
                unquote(operator) + by_aten
            )
    for case_id, operators in groups.items():
        shown = shlex.quote(one_line(case_id, _LONGEST))
        yield f"{shown}: {one_line(', '.join(operators), _LONGEST)}" if operators else shown


def parts_of(case_id: str) -> dict[str, str]:
    """Return the values in the id of a case by their keys, the backend first, as they are
    written.
    """
    parts = (
        part.partition("=") for part in case_id.partition("[")[2].rpartition("]")[0].split(",")
    )
    return {key: value for key, _, value in parts}


def shared_by_failures(results: Iterable[Redacted]) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield, for each spec, the fewest values that the ids of all failures have and that of no
    pass: its name, a sentence, and one or two keys that show it.
    """
    specs: defaultdict[str, list[Redacted]] = defaultdict(list)
    for result in filter(lambda result: result.is_executed, results):
        specs[result.case_id.partition("[")[0]].append(result)
    for spec, cases in specs.items():
        failed, passed = (
            [parts_of(case.case_id) for case in cases if case.outcome.is_failure is is_failure]
            for is_failure in (True, False)
        )
        if len(failed) < 2 or not passed:
            continue
        common = set.intersection(*(set(parts.items()) for parts in failed))
        ordered = [item for item in failed[0].items() if item in common]
        for values in itertools.chain(*(itertools.combinations(ordered, size) for size in _SIZES)):
            if not any(parts.items() >= set(values) for parts in passed):
                varied = [key for key in failed[0] if len({parts.get(key) for parts in failed}) > 1]
                shown = " and ".join(f"{key} {unquote(value)}" for key, value in values)
                sentence = f"all {len(failed)} failures of {spec} have {shown}, and no pass"
                yield spec, one_line(sentence), [*dict(values), *varied][:2]
                break


_SIZES = (1, 2, 3)
"""How many values a sentence names."""


def has_raised(verdict: Verdict) -> bool:
    """Whether an exception is all that a verdict says, also of the samples that it does not
    show.
    """
    of_samples = all(NO_EXCEPTION in wrong.message for wrong in verdict.wrong)
    return verdict.kind in ("raised", "crash", "timeout") or (
        verdict.expected.endswith(NO_EXCEPTION) and of_samples
    )

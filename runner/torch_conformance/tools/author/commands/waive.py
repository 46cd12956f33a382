"""``waive``: propose a waiver for each failure of recorded runs that none excuses.

A condition explains failures if it holds where a case failed and does not hold where the same case
passed. Conditions of one key come before those of two, and the keys in the order of ``KEYS``.
Without a run in which the case passed, no condition is proposed, because nothing shows where the
defect is absent. Where no condition explains them, the waiver is a flaky one.
"""

import itertools
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import shorten
from typing import TypeAlias

from torch_conformance.judge.waiving import Failure, failures_of
from torch_conformance.language.read.document import WAIVERS
from torch_conformance.language.read.yaml_source import parse
from torch_conformance.machine import output
from torch_conformance.matching.patterns import (
    LONGEST_PATTERN,
    glob,
    is_unspecific,
    pattern_of,
)
from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.diagnostics import UsageError, one_line
from torch_conformance.model.escaping import counted
from torch_conformance.model.flow import flow
from torch_conformance.model.outcomes import WAIVABLE, ExitCode, Outcome
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import MANY, CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.model.waivers import Signature
from torch_conformance.optional.options import argument, option
from torch_conformance.record.journal import recorded_run
from torch_conformance.report import replace
from torch_conformance.run.rejudge import surroundings_of_record


@frozen
class WaiveOptions:
    """The options of ``waive``."""

    targets: tuple[str, ...] = argument(
        "RUN", "recorded runs: a folder, an id, or latest", nargs="+"
    )
    to: Path | None = option("FILE", "add the waivers at the end of this file", reads=Path)
    issue: str = option("ID", "the issue that tracks the defect: a link or an id", "")
    reason: str = option("TEXT", "the defect, as a sentence", "")
    until: str = option("DATE", "the last day of the waivers (default: 90 days from now)", "")


FILL_IN = "FILL-IN"
"""What a person must replace: a waiver with it is not valid."""

DAYS = 90
"""How long a proposed waiver holds, where nothing else was asked for."""

Draft: TypeAlias = Mapping[str, Json]
"""A proposed waiver: an entry of a file of waivers."""

Seen: TypeAlias = tuple[str, Surroundings, CaseResult]
"""A result, with the name of its run and its surroundings."""


def proposals(options: WaiveOptions) -> tuple[list[Draft], list[str]]:
    """Return a draft for each failure of the runs that no waiver excuses, and why other failures
    have none.

    Cases of one spec with one failure share a draft.
    """
    try:
        until = (
            date.fromisoformat(options.until)
            if options.until
            else datetime.now(UTC).date() + timedelta(days=DAYS)
        )
    except ValueError as error:
        raise UsageError(
            f"--until '{one_line(options.until)}' is not a date: write one like 2027-03-01"
        ) from error
    by_case = defaultdict[str, list[Seen]](list)
    for name in options.targets:
        run = recorded_run(name).run
        for result in run.results:
            surroundings = surroundings_of_record(result.node or run.header.environment)
            by_case[result.case_id].append((run.header.run_id, surroundings, result))
    notes: list[str] = []
    groups = defaultdict[tuple[str, str], list[tuple[str, Draft]]](list)
    for case_id, seen_results in by_case.items():
        failing = [result for _, _, result in seen_results if _can_be_waived(result)]
        if not failing:
            notes += [
                f"{case_id}: {result.outcome.label} in {run_id} cannot be waived"
                for run_id, _, result in seen_results
                if result.outcome in (Outcome.ERROR, Outcome.FLAKY)
            ]
            continue
        failed, passed = (
            [
                surroundings
                for _, surroundings, result in seen_results
                if not outcomes_of(result).isdisjoint(outcomes)
            ]
            for outcomes in ((*WAIVABLE, Outcome.XFAIL), (Outcome.PASS, Outcome.XPASS))
        )
        when = smallest_condition(failed, passed)
        if when is None:
            notes.append(
                f"{case_id}: failed and passed under the same conditions; 'run --repeat "
                f"{MANY}' shows whether it flakes"
            )
        failures = [
            failure
            for result in failing
            for part in result.attempts or (result,)
            for failure in failures_of(part)
        ]
        signatures: list[Mapping[str, Json]] = []
        for failure in failures:
            if not any(_covers(signature, failure) for signature in signatures):
                signatures.append(signature_of(failure))
        if any(is_unspecific(str(signature["match"])) for signature in signatures):
            notes.append(
                f"{case_id}: its messages have no words by which a pattern could tell this "
                "failure from others"
            )
            continue
        explained: dict[str, Json] = {"flaky": True} if when is None else {}
        if when:
            explained["when"] = when
        explained["failure"] = signatures[0] if len(signatures) == 1 else signatures
        seen_reason = shorten(
            f"proposed from: {one_line(failures[0].message)}", LONGEST_PATTERN, placeholder=" ..."
        )
        draft = {
            **explained,
            "reason": options.reason or seen_reason,
            "issue": options.issue or FILL_IN,
            "until": until.isoformat(),
        }
        groups[case_id.partition("[")[0], json.dumps(explained)].append((case_id, draft))
    drafts: list[Draft] = []
    for group in groups.values():
        ids = [case_id for case_id, _ in group]
        # one glob where one matches the failing cases and no other of the runs
        pattern = f"{os.path.commonprefix(ids)}*"  # noqa: RUF071 - the ids are compared as texts
        matching = set(filter(glob(pattern).fullmatch, by_case))
        names = [pattern] if len(ids) > 1 and matching == set(ids) else ids
        drafts += [{"cases": cases, **group[0][1]} for cases in names]
    return drafts, notes


def _can_be_waived(result: CaseResult) -> bool:
    """Whether a result, or a part of a flaky one without an ERROR, is a failure for waivers."""
    outcomes = outcomes_of(result)
    is_flaky = result.outcome is Outcome.FLAKY and Outcome.ERROR not in outcomes
    return result.outcome in WAIVABLE or (is_flaky and not outcomes.isdisjoint(WAIVABLE))


def outcomes_of(result: CaseResult) -> set[Outcome]:
    """Return the outcomes of all attempts of a case."""
    return {attempt.outcome for attempt in result.attempts} or {result.outcome}


def document_of(drafts: Sequence[Draft], before: str = "") -> str:
    """Return a file of waivers; ``before`` is the text of one that they follow."""
    before = (
        before.rstrip()
        or "# Known failures. 'torch-conformance validate --waivers FILE' checks this "
        "file.\nwaivers: []"
    )
    if drafts:
        before = re.sub(r"^waivers:[ \t]*\[[ \t]*\]$", "waivers:", before, flags=re.MULTILINE)
    lines = [
        f"  {'-' if name == 'cases' else ' '} {name}: {flow(value)}"
        for draft in drafts
        for name, value in draft.items()
    ]
    return "\n".join([before, *lines]) + "\n"


# -- conditions ------------------------------------------------------------------------------------


Separate: TypeAlias = Mapping[
    str, Callable[[str, Sequence[Surroundings], Sequence[Surroundings]], Json]
]
"""For each key of a condition the function that makes its value, or None, from the key, the
surroundings where it must hold, and those where it must not.
"""


def smallest_condition(
    failed: Sequence[Surroundings], passed: Sequence[Surroundings], keys: Separate | None = None
) -> dict[str, Json] | None:
    """Return the condition with the fewest keys that holds for all of ``failed`` and none of
    ``passed``; None if there is none.

    It is empty where nothing passed. ``keys`` are those to use, the preferred one first.
    """
    if not passed:
        return {}
    parts = [
        (word, accepted)
        for word, make in (keys or KEYS).items()
        if (accepted := make(word, failed, passed)) is not None
    ]
    for size in range(1, len(parts) + 1):
        for when in map(dict, itertools.combinations(parts, size)):
            if all(holds(when, surroundings) for surroundings in failed) and not any(
                holds(when, surroundings) for surroundings in passed
            ):
                return when
    return None


def _words(key: str, failed: Sequence[Surroundings], passed: Sequence[Surroundings]) -> Json:
    """Return the values of a fact where a case failed; None where one is unknown."""
    values = {getattr(surroundings, key) for surroundings in failed}
    return (sorted(values) or None) if all(values) else None


def _range(key: str, failed: Sequence[Surroundings], passed: Sequence[Surroundings]) -> Json:
    """Return the widest range of releases that has each of those that failed, and none below or
    above them that passed; None where one is unknown.
    """
    bad, good = ({getattr(surroundings, key) for surroundings in side} for side in (failed, passed))
    if None in bad or not bad:
        return None
    good.discard(None)
    below = [release for release in good if release < min(bad)]
    above = [release for release in good if release > max(bad)]
    clauses = [f">={'.'.join(map(str, min(bad)))}"] if below else []
    clauses += [f"<{'.'.join(map(str, min(above)))}"] if above else []
    return ",".join(clauses) or None


KEYS: Separate = {"arch": _words, "torch": _range, "vendor": _words, "python": _range}
"""The keys of a condition that are proposed, the preferred one first.

Backend and device are parts of the id.
"""


# -- signatures ------------------------------------------------------------------------------------


def signature_of(failure: Failure) -> Mapping[str, Json]:
    """Return the signature of a failure.

    Of wrong numbers it has what was claimed, and in place of what was observed how wrong they are.
    """
    if not failure.numbers:
        return {"type": failure.type, "match": pattern_of(failure.message)}
    answer = {
        word: float(f"{number:.3g}")
        for word, number in failure.numbers.items()
        if word != "nonfinite" or number
    }
    claim = failure.message.partition(", observed ")[0]
    return {
        "type": failure.type,
        "match": pattern_of(f"{claim}, observed "),
        "error": answer.pop("error"),
        "answer": answer,
    }


def _covers(signature: Mapping[str, Json], failure: Failure) -> bool:
    """Whether a signature that was made of another failure is for this one too: then one is
    enough.
    """
    exact = signature_of(failure)
    if "error" not in signature or "error" not in exact:
        return signature == exact
    numbers = {"error": signature["error"], **signature["answer"]}
    other = Signature(failure.type, "", numbers=numbers)
    return signature["match"] == exact["match"] and other.covers(failure.numbers)


def main(options: WaiveOptions) -> ExitCode:
    """Print a file with the drafts, or add them to ``--to``; raise ``InvalidSpecs`` for a file that
    they cannot follow.
    """
    drafts, notes = proposals(options)
    for note in notes:
        output.note(one_line(note))
    if options.to is None:
        output.raw(document_of(drafts))
    else:
        text = document_of(drafts, options.to.read_text("utf-8") if options.to.exists() else "")
        parse(text, path=options.to, kind=WAIVERS)  # a file of another form stays as it is
        replace(options.to, text.encode("utf-8"))
    words = f"{counted(len(drafts), 'waiver')} proposed"
    if unfinished := sum(FILL_IN in document_of([draft]) for draft in drafts):
        words += (
            f"; {unfinished} of them have {FILL_IN} where a person must write something "
            "(--issue ID gives the issue)"
        )
    output.note(words)
    return ExitCode.OK

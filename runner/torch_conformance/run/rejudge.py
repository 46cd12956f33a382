"""Judges a recorded case again from its recorded files: a line of a journal is accepted if both
verdicts are equal.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from torch_conformance.judge.evidence import read_facts
from torch_conformance.judge.judge import judge
from torch_conformance.judge.waiving import Waivers, apply
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import Suite, load_specs, surroundings_of
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.redaction import MASK, redacted
from torch_conformance.model import devices
from torch_conformance.model.case import Case
from torch_conformance.model.case_facts import Ending
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.header import RunHeader
from torch_conformance.model.outcomes import JUDGED_BY_FACTS, Outcome
from torch_conformance.model.results import Attempt, CaseResult, Judged, fold, waived
from torch_conformance.plan.selection import without_benches
from torch_conformance.record.case_files import (
    OBSERVATION,
    EvidenceAltered,
    RecordedFiles,
    alterations,
)
from torch_conformance.vocabulary.backend import Backend


def problems(
    case: Case,
    backend: Backend,
    surroundings: Surroundings,
    result: CaseResult,
    run: Path,
    waivers: Waivers | None = None,
) -> list[str]:
    """Return why a recorded result is not accepted: altered files, or the case and how its files
    give another result.

    Without ``waivers``, none is looked at.
    """
    if reasons := list(alterations(run, result)):
        return reasons
    for part, judged in rejudged_parts(case, backend, surroundings, result, run):
        if isinstance(judged, str):
            reasons.append(judged)
        elif why := difference(case, part, judged):
            reasons.append(why)
        elif waivers and part is result and result.outcome in (Outcome.XFAIL, Outcome.XPASS):
            notes = apply(
                judged,
                case,
                surroundings_of_part(case, backend, result, surroundings),
                replace(waivers, today=date.min),
            ).waivers
            excused = waived(
                judged.outcome, notes, [attempt.outcome for attempt in result.attempts]
            )
            # what is masked matches no pattern of a waiver
            if excused is not result.outcome and not any(
                MASK in verdict.message for verdict in result.verdicts
            ):
                reasons.append(
                    f"{result.outcome.label} is recorded, and no waiver gives this outcome"
                )
    return [f"{case.id}: {why}" for why in reasons]


def rejudged_parts(
    case: Case, backend: Backend, machine_surroundings: Surroundings, result: CaseResult, run: Path
) -> Iterator[tuple[Attempt, Judged | str]]:
    """Yield a result and each attempt of it that facts decided, with what judging them again gives,
    or why that is impossible.

    A result that names a node is judged with the facts of that node.
    """
    for part in (result, *result.attempts):
        is_decided = fold(part.verdicts, result.target)[0] in (*JUDGED_BY_FACTS, Outcome.ERROR)
        if is_decided and part.outcome is not Outcome.NOT_RUN and OBSERVATION in part.evidence:
            folder = run / part.folder
            surroundings = surroundings_of_part(case, backend, part, machine_surroundings)
            files = RecordedFiles(folder, part.evidence)
            judged = judged_again(case, backend, surroundings, result, files, folder)
            # an attempt has only the verdicts that failed
            yield (
                part,
                judged
                if part is result or isinstance(judged, str)
                else replace(judged, verdicts=judged.failed),
            )


def difference(case: Case, old: Attempt, new: Judged) -> str:
    """Return how the verdicts of a recorded part differ from those of now; empty where they are the
    same, or a pattern was too slow.
    """
    if is_too_slow(new.verdicts):
        return ""
    recorded, judged = (fold(part.verdicts, case.target)[0] for part in (old, new))
    if recorded is not judged:
        why = next((f": {verdict.message}" for verdict in new.failed), "")
        return (
            f"{recorded.label} is recorded, and judging its files again gives {judged.label}{why}"
        )
    if len(old.verdicts) != len(new.verdicts):
        return (
            f"{len(old.verdicts)} verdicts are recorded, and judging its files again gives "
            f"{len(new.verdicts)}"
        )
    for before, verdict in zip(old.verdicts, new.verdicts, strict=True):
        # an error has the place where the spec's own code raised: a submission has other names of
        # files in its traceback
        lines = [
            (part.position.line, part.position.column) if verdict.kind != "error" else ()
            for part in (before, verdict)
        ]
        if (before.kind, before.status, lines[0]) != (
            verdict.kind,
            verdict.status,
            lines[1],
        ):
            gives = (
                f"judging its files again gives {verdict.kind} {verdict.status.value}: "
                f"{verdict.message}"
            )
            return (
                f"{before.position}: {before.kind} {before.status.value} is recorded, and {gives}"
            )
    return ""


def judged_again(
    case: Case,
    backend: Backend,
    surroundings: Surroundings,
    result: CaseResult,
    files: RecordedFiles,
    folder: Path,
) -> Judged | str:
    """Return what recorded files give, or why they cannot be judged; ``folder`` is named in that
    reason.
    """
    if result.benches_left_out:
        case = without_benches(case)
    try:
        facts = read_facts(
            files.observation(),
            files.code,
            ending=Ending(exit_code=0),
            services=tuple(files.services()),
        )
        return judge(case, backend, surroundings, facts)
    except EvidenceAltered as error:
        return str(error)
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{folder}: not the files of a run: {error}"


def is_too_slow(verdicts: Iterable[Verdict]) -> bool:
    """Whether this machine was too slow for a pattern of a verdict; nothing follows from the others
    then.
    """
    return any(
        "pattern too slow" in verdict.observed
        for verdict in verdicts
        if verdict.status is Status.ERROR
    )


def is_text(recorded: str, judged: str) -> bool:
    """Whether a recorded text is the one of now; what is masked may differ."""
    texts = recorded, redacted(judged)
    return any(
        re.fullmatch(".*".join(map(re.escape, text.split(MASK))), other, re.DOTALL)
        for text, other in (texts, texts[::-1])
    )


TRACED = ("raised", "error")
"""Kinds of verdicts whose detail is a traceback: its frames are folded by their folders, which a
submission does not have.
"""


def is_same_text(old: Verdict, new: Verdict) -> bool:
    """Whether two verdicts have the same texts."""
    texts = [
        (old.expected, new.expected),
        (old.observed, new.observed),
        *([] if old.kind in TRACED else [(old.detail, new.detail)]),
    ]
    return all(is_text(recorded, judged) for recorded, judged in texts)


# -- the files that the header of a run names ------------------------------------------------------


def files_of(header: RunHeader, option: str) -> list[Path]:
    """Return the files that ``--backends`` or ``--waivers`` named; for a merged run, those of its
    parts.
    """
    return [Path(name) for name in shlex.split(header.options.get(option, ""))]


def suite_of(
    header: RunHeader, results: Iterable[CaseResult], backends: Sequence[Path] = ()
) -> Suite:
    """Return the specs of results, with these files of backends, or with those of the run.

    Raise ``UsageError`` where one is missing, or is not the file that the run read.
    """
    torch = surroundings_of(header.environment.get("torch"), None)
    suite = load_specs(specs_of(results), backends or files_of(header, "backends"), torch)
    require_same(suite.digests, header)
    return suite


def specs_of(results: Iterable[CaseResult]) -> list[SpecPath]:
    """Return the spec files of results, each with the root folder of its area; raise ``UsageError``
    where one is missing.
    """
    specs: dict[str, SpecPath] = {}
    for result in results:
        path = Path(result.spec).absolute()
        depth = len(Path(result.area).parts)
        if not path.is_file():
            raise UsageError(
                f"{result.spec} of the run is not there: give this command where the run was "
                "started, with the files that it read"
            )
        if depth >= len(path.parents):
            raise UsageError(
                f"{result.spec} is not in the folder '{result.area}', which the run names"
            )
        specs[result.spec] = SpecPath(path=path, root=path.parents[depth])
    return list(specs.values())


def require_same(read: Mapping[str, str], header: RunHeader) -> None:
    """Raise ``UsageError`` for files, of those read now with their digests, that the run did not
    read with the same digest.
    """
    if other := sorted(file for file, digest in read.items() if header.specs.get(file) != digest):
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        raise UsageError(
            f"{other[0]}{more}: not the file that the run {header.run_id} read; run it again"
        )


# -- the machine that a recorded result came from: that of the node that it names, or that of the ru


def surroundings_of_record(facts: Mapping[str, str]) -> Surroundings:
    """Return the surroundings that recorded facts of a machine give, for conditions, without a
    backend.
    """
    release = tuple(
        int(number) for number in facts.get("python", "").split(".") if number.isdecimal()
    )
    python = release if "python" in facts else sys.version_info[:3]
    builds = {build.version: facts.get(build.version) for build in devices.builds()}
    machine = Machine(
        python=python, torch=facts.get("torch"), release=None, builds=builds, arch=facts.get("arch")
    )
    return replace(surroundings_of(machine.torch, machine), python=python)


def surroundings_of_part(
    case: Case, backend: Backend, part: Attempt, surroundings: Surroundings
) -> Surroundings:
    """Return the surroundings of the machine, or node, that made a result or an attempt."""
    return surroundings_for(
        backend,
        surroundings_of_record(part.node) if part.node else surroundings,
        case.target,
    )


def impossible_on_machine(
    results: Iterable[CaseResult], environment: Mapping[str, str], backends: Mapping[str, Backend]
) -> str:
    """Return which case a machine without a GPU cannot have executed; empty for none.

    The machine is the node that a result names, or that of the header with this ``environment``.
    """
    for result in results:
        if (result.node or environment).get("gpus") != "0":
            continue
        device = devices.kind_of(
            backends[result.backend].device if result.backend in backends else devices.CPU
        )
        # whether there was a device of a vendor's module is not recorded
        if device in devices.WITHOUT_MODULE and device != devices.CPU and result.folder:
            return (
                f"{result.case_id!r}: {result.outcome.label} on {device}, and the machine had no "
                "GPU"
            )
    return ""

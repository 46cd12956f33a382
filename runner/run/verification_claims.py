"""Which claims of a submission follow from evidence, and which are its author's word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import Run
from runner.record.submission.layout import OWN, SHIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a submission, a sentence each."""

    follows: tuple[str, ...]
    words: tuple[str, ...]


def claims(run: Run, results: Sequence[CaseResult], *, signature: tuple[str, bool], compared: bool, judged: bool) -> Claims:
    """Return the claims of a run.

    ``signature`` is the id of its key and whether that was checked, ``compared`` whether the author's files were.
    """
    return Claims(
        follows=tuple(_follows(run, results, signature, compared=compared)) if judged else (),
        words=tuple(_words(run, results, signature, compared=compared)),
    )


def _follows(run: Run, results: Sequence[CaseResult], signature: tuple[str, bool], *, compared: bool) -> Iterator[str]:
    shown = sum(result.is_executed and "observation.json" in result.evidence for result in results)
    own = sum(name.startswith(f"{OWN}/") for name in run.header.specs)
    shipped = sum(name.startswith(f"{SHIPPED}/") for name in run.header.specs)
    yield f"the verdicts, proofs and outcomes of {shown} executed cases, each from an observation in the archive"
    yield f"that {shipped} files of specs, backends and waivers are the published ones of this version"
    if own and compared:
        yield f"that {own} files of the author are those below --specs"
    yield "the totals, the JUnit report and the coverage of the ledger, from these outcomes"
    if run.header.profile:
        yield "the statement of the profile, from these outcomes and the required cases"
    if signature[1]:
        yield f"that the holder of the key {signature[0][:16]} attested this archive"


def _words(run: Run, results: Sequence[CaseResult], signature: tuple[str, bool], *, compared: bool) -> Iterator[str]:
    facts = run.header.environment
    yield f"that the observations were made by torch {facts.get('torch', '?')}, unmodified, on {_machine(facts)}"
    yield "that each observation was measured by the worker of this program, and is not made up; its facts agree with each other"
    yield f"the times: when the run began ({run.header.started}) and how long each case took"
    unshown = [result for result in results if result.folder and "observation.json" not in result.evidence]
    if unshown:
        yield f"that {len(unshown)} cases ended as recorded without an observation (crash, timeout, error)"
    waived = [result for result in unshown if result.outcome is Outcome.XFAIL]
    if waived:
        yield f"of these, {len(waived)} that a waiver excuses: such a case may have failed otherwise"
    missing = sum(result.outcome is Outcome.UNAVAILABLE for result in results)
    if missing:
        yield f"why {missing} cases could not run on that machine"
    own = sum(name.startswith(f"{OWN}/") for name in run.header.specs)
    if own and not compared:
        yield f"the content of {own} files of the author (specs, backends, waivers, profile): name their published form with --specs"
    if run.header.merged:
        yield f"that the {len(run.header.merged)} parts of the run were made on machines of the same kind"
    if not signature[1]:
        yield "who made the archive: " + (
            f"it names the key {signature[0][:16]}; check it with --key" if signature[0] else "it is not signed"
        )


def _machine(facts: Mapping[str, str]) -> str:
    return f"{facts.get('device') or facts.get('cpu') or 'a machine without a name'} ({facts.get('arch') or facts.get('platform') or '?'})"

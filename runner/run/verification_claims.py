"""Which claims of a submission follow from evidence, and which are its author's word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import Run
from runner.record.submission.layout import OWN, SHIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the reader compared the submission with."""

    signer: str
    """The id of the key that the attestation names; empty for none."""
    is_signed: bool
    """Whether the signature was checked with the reader's key."""
    has_files: bool
    """Whether the author's files were compared with files of the reader."""
    has_profile: bool
    """Whether the profile was compared with one of the reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a submission, a sentence each."""

    follows: tuple[str, ...]
    words: tuple[str, ...]


def claims(run: Run, results: Sequence[CaseResult], known: Known) -> Claims:
    """Return the claims of a run."""
    return Claims(follows=tuple(_follows(run, results, known)), words=tuple(_words(run, results, known)))


def _follows(run: Run, results: Sequence[CaseResult], known: Known) -> Iterator[str]:
    shown = sum(result.is_executed and _is_shown(result) for result in results)
    own, shipped = _count(run, OWN), _count(run, SHIPPED)
    yield f"the verdicts, proofs and outcomes of {shown} executed cases, each from an observation in the archive"
    yield f"that {shipped} files of specs, backends and waivers are the published ones of this version"
    if own and known.has_files:
        yield f"that {own} files of the author are the published ones that you named"
    yield "the totals and the JUnit report, from these outcomes"
    if any(count.file.startswith(SHIPPED) for count in (run.footer.ledgers if run.footer else ())):
        yield "how many cases of the ledger were executed"
    if run.header.profile and known.has_profile:
        yield "the statement, from these outcomes and from what your profile requires"
    if known.is_signed:
        yield f"that the holder of the key {known.signer[:16]} attested this archive"


def _words(run: Run, results: Sequence[CaseResult], known: Known) -> Iterator[str]:
    machines = [part.node or run.header.environment for result in results for part in (result, *result.attempts) if part.folder]
    for words in dict.fromkeys(map(_torch_and_machine, machines or [run.header.environment])):
        yield f"that the observations were made by torch {words}"
    yield "that the worker of this program measured each observation, which only the author's machine can repeat"
    yield "that no case was run more often than the journal says"
    yield f"the times: when the run began ({run.header.started}), by which waivers end, and how long each case took"
    unshown = [result for result in results if result.folder and not _is_shown(result)]
    if unshown:
        yield f"that {len(unshown)} cases ended as recorded, without an observation (crash, timeout, error)"
    if waived := [result for result in unshown if result.outcome is Outcome.XFAIL]:
        yield f"of these, {len(waived)} that a waiver excuses: such a case may have failed otherwise"
    if missing := sum(result.outcome is Outcome.UNAVAILABLE for result in results):
        yield f"why {missing} cases could not run on that machine"
    own = _count(run, OWN)
    if own and not known.has_files:
        yield f"the content of {own} files of the author (specs, backends, waivers, profile): name their published form with --specs"
    for profile in run.header.profile if not known.has_profile else ():
        yield f"what the profile {profile.name} {profile.version} requires, and so its statement: name yours with --profile"
    if len(run.header.merged) > 1:
        yield f"that the {len(run.header.merged)} parts of the run were made on machines of the same kind"
    if not known.is_signed:
        named = f"it names the key {known.signer[:16]}; check it with --key" if known.signer else "it is not signed"
        yield f"who made the archive: {named}"


def _is_shown(result: CaseResult) -> bool:
    return "observation.json" in result.evidence


def _count(run: Run, folder: str) -> int:
    return sum(name.startswith(f"{folder}/") for name in run.header.specs)


def _torch_and_machine(facts: Mapping[str, str]) -> str:
    node = f" (node {facts['name']})" if "name" in facts else ""
    name = facts.get("device") or facts.get("cpu") or "a machine without a name"
    return f"{facts.get('torch', '?')}, unmodified, on {name} ({facts.get('arch') or facts.get('platform') or '?'}){node}"

"""What ``verify`` found: findings, what could not be judged, what follows from evidence, and what is the author's word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runner.core.conformance import Statement
from runner.core.exit_codes import ExitCode
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import Run, encode
from runner.record.submission.archive import OWN, SHIPPED

CHECKS: Mapping[str, str] = {
    "archive": "the file is one archive in the form that 'submit' writes, and nothing else",
    "manifest": "every member is there and no other, with its size and sha256",
    "signature": "the attestation is signed as it says, and with the key of --key",
    "attestation": "the attestation says what the other members say",
    "journal": "the journal ends, and no line contradicts another",
    "report": "the JUnit report says what the journal says",
    "files": "the files that the run read are the published ones",
    "evidence": "each observation and each piece of generated code is the one by which its case was judged",
    "cases": "each case is one of the files, with the same content",
    "verdicts": "judging each observation again gives the same verdicts, outcome and waivers",
    "facts": "code, counters, census and kernels of each observation agree",
    "machine": "the facts of the machine allow what was executed there",
    "profile": "the run is one of this profile, with its cases, waivers and options",
}
"""What is checked, by the word of a finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction. One of them makes a submission worthless."""

    check: str
    """A key of ``CHECKS``."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of verifying a submission."""

    findings: tuple[Finding, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Why something could not be judged here."""
    follows: tuple[str, ...] = ()
    """Claims that follow from the evidence in the archive and the published files."""
    words: tuple[str, ...] = ()
    """Claims for which the archive has no evidence."""
    run: str = ""
    signer: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)
    """The outcomes as they were judged again."""
    statement: Statement | None = None
    """As it was computed again."""
    code_of_cases: ExitCode = ExitCode.NOTHING
    """The exit code of a run with these results."""

    @property
    def exit_code(self) -> ExitCode:
        """1 for a contradiction, 4 where something could not be judged, else that of the statement or the results."""
        if self.findings:
            return ExitCode.FAILED
        code = self.statement.conformance.exit_code if self.statement else self.code_of_cases
        return ExitCode.NOTHING if self.unjudged and code is ExitCode.OK else code


FORMAT = 1
"""The number of the form of ``--json``."""


def as_json(found: Verification) -> dict[str, object]:
    """Return a verification as ``verify --json`` prints it."""
    return {
        "format": FORMAT,
        "verified": not found.findings and not found.unjudged,
        "exit_code": int(found.exit_code),
        "run": found.run,
        "signer": found.signer,
        "findings": [{"check": finding.check, "message": finding.message} for finding in found.findings],
        "unjudged": list(found.unjudged),
        "follows": list(found.follows),
        "words": list(found.words),
        "totals": dict(found.totals),
        "statement": encode(found.statement) if found.statement else None,
    }


# -- what follows from evidence -----------------------------------------------------------------------------------


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


def claims_of(run: Run, results: Sequence[CaseResult], known: Known) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the claims of a run that follow from evidence, and those that are its author's word; a sentence each."""
    return tuple(_follows(run, results, known)), tuple(_words(run, results, known))


def _follows(run: Run, results: Sequence[CaseResult], known: Known) -> Iterator[str]:
    shown = sum(result.is_executed and _is_shown(result) for result in results)
    own, shipped = _count(run, OWN), _count(run, SHIPPED)
    yield f"the verdicts, proofs and outcomes of {shown} executed cases, each from an observation in the archive"
    yield f"that {shipped} files of specs, backends and waivers are the published ones of this version"
    if own and known.has_files:
        yield f"that {own} files of the author are the published ones that you named"
    yield "the totals and the JUnit report, from these outcomes"
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

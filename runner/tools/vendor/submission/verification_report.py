"""What ``verify`` found: findings, what could not be judged, what follows from evidence, and what is the author's word."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.model.conformance import Statement
from runner.model.outcomes import ExitCode, Outcome
from runner.model.results import CaseResult
from runner.record.journal import Run, encode
from runner.tools.vendor.submission.archive import OWN, SHIPPED

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
    weak: tuple[str, ...] = ()
    """The expectations that could not have failed, each with its place and the reason that its spec writes."""
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


def as_json(verification: Verification) -> dict[str, object]:
    """Return a verification as ``verify --json`` prints it."""
    return {
        "format": FORMAT,
        "verified": not verification.findings and not verification.unjudged,
        "exit_code": int(verification.exit_code),
        "run": verification.run,
        "signer": verification.signer,
        "findings": [{"check": finding.check, "message": finding.message} for finding in verification.findings],
        "unjudged": list(verification.unjudged),
        "follows": list(verification.follows),
        "words": list(verification.words),
        "weak": list(verification.weak),
        "totals": dict(verification.totals),
        "statement": encode(verification.statement) if verification.statement else None,
    }


# -- what follows from evidence -----------------------------------------------------------------------------------


def claims_of(run: Run, *, signer: str, is_signed: bool, has_files: bool, has_profile: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the claims of a run that follow from evidence, and those that are its author's word; a sentence each.

    ``signer`` is the id of the key that the attestation names, empty for none. The reader's key checked the signature (``is_signed``), and
    the author's files and profile were compared with those of the reader (``has_files``, ``has_profile``), or not.
    """
    header, results = run.header, run.results
    own, shipped = (sum(name.startswith(f"{folder}/") for name in header.specs) for folder in (OWN, SHIPPED))
    shown = sum(result.is_executed and _is_shown(result) for result in results)
    unshown = [result for result in results if result.folder and not _is_shown(result)]
    waived = sum(result.outcome is Outcome.XFAIL for result in unshown)
    missing = sum(result.outcome is Outcome.UNAVAILABLE for result in results)
    facts = [part.node or header.environment for result in results for part in (result, *result.attempts) if part.folder]
    machines = dict.fromkeys(map(_torch_and_machine, facts or [header.environment]))
    profile = "".join(f"{record.name} {record.version}" for record in header.profile)
    named = f"it names the key {signer[:16]}; check it with --key" if signer else "it is not signed"
    follows = {
        f"the verdicts, proofs and outcomes of {shown} executed cases, each from an observation in the archive": True,
        f"that {shipped} files of specs, backends and waivers are the published ones of this version": True,
        f"that {own} files of the author are the published ones that you named": own and has_files,
        "the totals and the JUnit report, from these outcomes": True,
        "the statement, from these outcomes and from what your profile requires": profile and has_profile,
        f"that the holder of the key {signer[:16]} attested this archive": is_signed,
    }
    words = {
        **{f"that the observations were made by torch {machine}": True for machine in machines},
        "that the worker of this program measured each observation, which only the author's machine can repeat": True,
        "that no case was run more often than the journal says": True,
        f"the times: when the run began ({header.started}), by which waivers end, and how long each case took": True,
        f"that {len(unshown)} cases ended as recorded, without an observation (crash, timeout, error)": unshown,
        f"of these, {waived} that a waiver excuses: such a case may have failed otherwise": waived,
        f"why {missing} cases could not run on that machine": missing,
        f"the content of {own} files of the author (specs, backends, waivers, profile): name their published form with --specs": own
        and not has_files,
        f"what the profile {profile} requires, and so its statement: name yours with --profile": profile and not has_profile,
        f"that the {len(header.merged)} parts of the run were made on machines of the same kind": len(header.merged) > 1,
        f"who made the archive: {named}": not is_signed,
    }
    return tuple(text for text, holds in follows.items() if holds), tuple(text for text, holds in words.items() if holds)


def _is_shown(result: CaseResult) -> bool:
    return "observation.json" in result.evidence


def _torch_and_machine(facts: Mapping[str, str]) -> str:
    node = f" (node {facts['name']})" if "name" in facts else ""
    name = facts.get("device") or facts.get("cpu") or "a machine without a name"
    return f"{facts.get('torch', '?')}, unmodified, on {name} ({facts.get('arch') or facts.get('platform') or '?'}){node}"

"""What ``verify`` found: findings, what could not be judged, what follows from evidence, and what is the author's word."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.core.conformance import Statement
from runner.core.exit_codes import ExitCode
from runner.record.journal import encode

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
    "coverage": "the counts of the ledger follow from the results",
    "profile": "the run is one of this profile, with its cases, waivers and options",
    "statement": "the statement follows from the results",
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

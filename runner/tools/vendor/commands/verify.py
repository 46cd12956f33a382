"""``verify``: check a submission, and print which of its claims follow from evidence."""

from collections.abc import Iterator

from runner.machine import output
from runner.machine.redaction import redacted
from runner.model.diagnostics import one_line
from runner.model.outcomes import ExitCode
from runner.report import statement
from runner.report.junit import difference
from runner.tools.vendor.submission.verification import VerifyOptions, verified_file
from runner.tools.vendor.submission.verification_report import CHECKS, Verification, as_json

_SHOWN = 20
"""How many findings of one check are printed; ``--json`` has all of them."""


def main(options: VerifyOptions) -> ExitCode:
    """Verify an archive; exit 1 where something contradicts it, else as its statement or its results say."""
    verification = verified_file(options, difference)
    if options.json:
        output.document(as_json(verification))
    else:
        for line in _lines(verification):
            output.raw(f"{line}\n")
    output.note(_in_short(verification))
    return verification.exit_code


def _lines(verification: Verification) -> Iterator[str]:
    for check, meaning in CHECKS.items():
        wrong = [finding.message for finding in verification.findings if finding.check == check]
        if wrong:
            yield f"{check}: NOT so: {meaning}"
            yield from (f"  {_shown(message)}" for message in wrong[:_SHOWN])
            yield from [f"  and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    parts = {"not judged:": verification.unjudged, "follows from evidence:": verification.follows, "the author's word:": verification.words}
    for title, claims in {**parts, "weak: could not have failed, as the specs say": verification.weak}.items():
        if claims:
            yield title
            yield from (f"  {_shown(claim)}" for claim in claims)
    if verification.totals:
        yield "judged again: " + ", ".join(f"{count} {label}" for label, count in verification.totals.items() if count)
    if verification.statement is not None:
        yield from statement.lines_of_statement(verification.statement)


def _shown(text: str) -> str:
    return redacted(one_line(text))


def _in_short(verification: Verification) -> str:
    if verification.findings:
        count = len(verification.findings)
        return f"NOT VERIFIED: {count} contradiction{'' if count == 1 else 's'}; nothing of this archive is shown"
    if verification.unjudged:
        return f"NOT VERIFIED: {_shown(verification.unjudged[0])}"
    return f"verified{f': {verification.statement.conformance.value}' if verification.statement else ''}"

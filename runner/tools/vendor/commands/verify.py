"""``verify``: check a submission, and print which of its claims follow from evidence."""

from collections.abc import Iterator

from runner.machine import output
from runner.machine.redaction import redacted
from runner.model.diagnostics import one_line
from runner.model.exit_codes import ExitCode
from runner.report import statement
from runner.report.junit import difference
from runner.tools.vendor.submission.verification import VerifyOptions, verified_file
from runner.tools.vendor.submission.verification_report import CHECKS, Verification, as_json

_SHOWN = 20
"""How many findings of one check are printed; ``--json`` has all of them."""


def main(options: VerifyOptions) -> ExitCode:
    """Verify an archive; exit 1 where something contradicts it, else as its statement or its results say."""
    found = verified_file(options, difference)
    if options.json:
        output.document(as_json(found))
    else:
        for line in _lines(found):
            output.raw(f"{line}\n")
    output.note(_in_short(found))
    return found.exit_code


def _lines(found: Verification) -> Iterator[str]:
    for check, meaning in CHECKS.items():
        wrong = [finding.message for finding in found.findings if finding.check == check]
        if wrong:
            yield f"{check}: NOT so: {meaning}"
            yield from (f"  {_shown(message)}" for message in wrong[:_SHOWN])
            yield from [f"  and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    parts = {"not judged:": found.unjudged, "follows from evidence:": found.follows, "the author's word:": found.words}
    for title, claims in {**parts, "weak: could not have failed, as the specs say": found.weak}.items():
        if claims:
            yield title
            yield from (f"  {_shown(claim)}" for claim in claims)
    if found.totals:
        yield "judged again: " + ", ".join(f"{count} {label}" for label, count in found.totals.items() if count)
    if found.statement is not None:
        yield from statement.lines_of_statement(found.statement)


def _shown(text: str) -> str:
    return redacted(one_line(text))


def _in_short(found: Verification) -> str:
    if found.findings:
        count = len(found.findings)
        return f"NOT VERIFIED: {count} contradiction{'' if count == 1 else 's'}; nothing of this archive is shown"
    if found.unjudged:
        return f"NOT VERIFIED: {_shown(found.unjudged[0])}"
    return f"verified{f': {found.statement.conformance.value}' if found.statement else ''}"

"""``submit``: write the archive of a run that ``verify`` reads."""

from pathlib import Path

from runner.machine import output
from runner.machine.redaction import redacted
from runner.model.diagnostics import UsageError, shown_path
from runner.model.outcomes import ExitCode
from runner.report import replace, statement
from runner.report.junit import difference, document_of
from runner.tools.vendor.submission.submitting import Altered, Submission, SubmitOptions, submission


def main(options: SubmitOptions) -> ExitCode:
    """Pack a run, verify the archive, and write it; exit 1 where something contradicts it."""
    if options.out is not None:
        _require_free(options.out, may_replace=options.replace)
    try:
        packed = submission(options, lambda run: document_of(run.header, run.results), difference)
    except Altered as error:
        output.note(f"torch-conformance: {error}; nothing was written")
        return ExitCode.FAILED
    if packed.verification.findings:
        for finding in packed.verification.findings:
            output.note(redacted(f"{finding.check}: {finding.message}"))
        output.note("torch-conformance: this run contradicts itself; nothing was written")
        return ExitCode.FAILED
    path = options.out or Path(f"submission-{packed.header.run_id}.tar.zst")
    _require_free(path, may_replace=options.replace)
    replace(path, packed.data)
    _show(options, packed, path)
    return ExitCode.OK


def _require_free(path: Path, *, may_replace: bool) -> None:
    if path.exists() and (not may_replace or not path.is_file()):
        hint = "add --replace, or name another" if path.is_file() else "name another"
        raise UsageError(f"--out {shown_path(path)}: this exists already ({hint})")


def _show(options: SubmitOptions, packed: Submission, path: Path) -> None:
    stated = packed.verification.statement
    words = stated.conformance.value if stated else ""
    counted = f"; {statement.in_words(stated)}" if stated else ""
    if options.json:
        output.document(
            {
                "format": 1,
                "archive": str(path),
                "bytes": len(packed.data),
                "files": packed.files,
                "run": packed.header.run_id,
                "signer": packed.signer,
                "statement": words,
                "unjudged": list(packed.verification.unjudged),
                "weak": list(map(redacted, packed.verification.weak)),
            }
        )
        return
    for why in packed.verification.unjudged:
        output.note(f"warning: not verified: {redacted(why)}")
    for reason in packed.verification.weak:
        output.note(redacted(f"weak: {reason}"))
    signed = f"signed with the key {packed.signer[:16]}" if packed.signer else "not signed"
    output.note(f"{packed.files} files, {len(packed.data)} bytes, {signed}{counted}")
    output.raw(f"{shown_path(path)}\n")

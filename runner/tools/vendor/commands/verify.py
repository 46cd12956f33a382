"""``verify``: check a submission, and print which of its claims follow from evidence."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.machine import output
from runner.machine.redaction import redacted
from runner.model.diagnostics import UsageError, one_line, shown_path
from runner.model.options import argument, flag, option, profile_option, several
from runner.model.outcomes import ExitCode
from runner.tools.vendor.archive import MOST_COMPRESSED, read_public_key
from runner.tools.vendor.verification import CHECKS, Verification, as_json, verified

_SHOWN = 20
"""How many findings of one check are printed; ``--json`` has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of ``verify``."""

    archive: Path = argument("ARCHIVE", "the file that 'submit' wrote", Path)
    profile: str | None = profile_option("state whether the run conforms to this profile of yours, not to the author's copy of it")
    specs: tuple[Path, ...] = several(
        "PATH",
        "published files of the author (specs, backends, waivers, profile) that those in the archive must equal: a file or a folder; the "
        "shipped ones are always compared",
        Path,
    )
    key: Path | None = option("FILE", "the author's public key (Ed25519, PEM): the archive must have a valid signature of it", reads=Path)
    json: bool = flag("print one object")


def main(options: VerifyOptions) -> ExitCode:
    """Verify an archive; exit 1 where something contradicts it, else as its statement or its results say."""
    key = read_public_key(options.key) if options.key else None
    try:
        with options.archive.open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UsageError(f"{shown_path(options.archive)}: this is no file")
            data = stream.read(MOST_COMPRESSED + 1)
    except OSError as error:
        raise UsageError(f"{shown_path(options.archive)}: it cannot be read: {error.strerror}") from error
    verification = verified(data, profile=options.profile, specs=options.specs, key=key)
    if options.json:
        output.document(as_json(verification))
    else:
        for line in _lines(verification):
            output.raw(f"{line}\n")
    if verification.findings:
        count = len(verification.findings)
        output.note(f"NOT VERIFIED: {count} contradiction{'' if count == 1 else 's'}; nothing of this archive is shown")
    elif verification.unjudged:
        output.note(f"NOT VERIFIED: {_shown(verification.unjudged[0])}")
    else:
        output.note(f"verified{f': {verification.statement.conformance.value}' if verification.statement else ''}")
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
        yield from verification.statement.lines()


def _shown(text: str) -> str:
    return redacted(one_line(text))

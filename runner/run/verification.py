"""``verify``: a submission checked by a stranger, from the bytes of the archive to a statement that was computed again."""

import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from runner import __version__
from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.header import RunHeader
from runner.core.options import argument, flag, option, profile_option, several
from runner.core.results import CaseResult
from runner.record.evidence import alterations
from runner.record.journal import JournalError, Run, read_run
from runner.record.submission import attestation
from runner.record.submission.archive import (
    ATTESTATION,
    ENVELOPE,
    ENVIRONMENT,
    FIXED,
    JOURNAL,
    JUNIT,
    MOST_COMPRESSED,
    BadArchive,
    manifest_problems,
    name_of,
    unpacked,
)
from runner.run.verification_judging import judged_again
from runner.run.verification_report import Finding, Verification

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


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


JUnitDifference: TypeAlias = Callable[[bytes, RunHeader, Sequence[CaseResult]], str]
"""Returns where a report differs from the one that a journal gives."""


_NO_RUN = (ValueError, TypeError, LookupError, RecursionError, ArithmeticError)


def verified_file(options: VerifyOptions, difference: JUnitDifference) -> Verification:
    """Return what is found of the archive that ``verify`` names; raise ``UsageError`` where there is no file, or no key."""
    key = attestation.read_public_key(options.key) if options.key else None
    try:
        with options.archive.open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UsageError(f"{shown_path(options.archive)}: this is no file")
            data = stream.read(MOST_COMPRESSED + 1)
    except OSError as error:
        raise UsageError(f"{shown_path(options.archive)}: it cannot be read: {error.strerror}") from error
    return verified(data, difference=difference, profile=options.profile, specs=options.specs, key=key)


def verified(
    data: bytes,
    *,
    difference: JUnitDifference,
    profile: str | None = None,
    specs: Sequence[Path] = (),
    key: "Ed25519PublicKey | None" = None,
) -> Verification:
    """Return what is found in the bytes of an archive, which is untrusted."""
    try:
        members = unpacked(data)
    except BadArchive as error:
        return Verification(findings=(Finding("archive", str(error)),))
    findings = [Finding("manifest", problem) for problem in manifest_problems(members)]
    if FIXED - members.keys():
        return Verification(findings=tuple(findings))
    signer = attestation.signer_in(members[ATTESTATION])
    if ENVELOPE in members:
        if why := attestation.why_not_signed(members[ENVELOPE], members[ATTESTATION], key):
            findings.append(Finding("signature", f"{ENVELOPE}: {why}"))
    elif signer:
        findings.append(Finding("signature", f"the attestation names the key {signer[:16]}, and its signature is missing"))
    elif key is not None:
        findings.append(Finding("signature", "it is not signed, and --key asks for a signature"))
    with tempfile.TemporaryDirectory(prefix="torch-conformance-verify-") as place:
        folder = Path(place)
        for member, content in members.items():  # their names were checked when they were read
            path = folder / name_of(member)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as stream:
                stream.write(content)
        try:
            run = read_run(folder / JOURNAL)
            findings += _of_run(members, run, folder, difference)
            if run.footer is None:
                return Verification(findings=tuple(findings), run=run.header.run_id)
            if run.header.version != __version__:
                why = f"it is of version {run.header.version}, and this is {__version__}: verify it with that version"
                return Verification(findings=tuple(findings), unjudged=(why,), run=run.header.run_id)
            return judged_again(run, folder, tuple(findings), signature=(signer, key is not None), profile=profile, specs=specs)
        except JournalError as error:
            findings.append(Finding("journal", str(error)))
        except _NO_RUN as error:  # values of the right type that no run writes
            findings.append(Finding("journal", f"it holds what no run writes: {type(error).__name__}: {one_line(str(error))[:200]}"))
        return Verification(findings=tuple(findings))


def _of_run(members: Mapping[str, bytes], run: Run, folder: Path, difference: JUnitDifference) -> Iterator[Finding]:
    """Yield what contradicts the journal, without a judge."""
    if run.footer is None or run.footer.interrupted or run.header.shard:
        yield Finding("journal", "the run did not end, or is a part of a run")
    if any(json.dumps(json.loads(line)).encode("ascii") != line for line in members[JOURNAL].splitlines()):
        yield Finding("journal", "a line is not written as 'submit' writes it")
    if run.header.started[:10] > (datetime.now(UTC) + timedelta(days=1)).date().isoformat():
        yield Finding("journal", "the run begins in the future")
    if run.footer is None:
        return
    if members[ENVIRONMENT] != attestation.environment_of(run):
        yield Finding("attestation", f"{ENVIRONMENT} is not what the journal says of the machine")
    expected = attestation.statement_of(run, members, attestation.signer_in(members[ATTESTATION]))
    if why := attestation.difference(members[ATTESTATION], expected):
        yield Finding("attestation", why)
    if why := difference(members[JUNIT], run.header, run.results):
        yield Finding("report", why)
    used: set[str] = set()
    for result in run.results:
        yield from (Finding("evidence", problem.removeprefix(f"{folder}/")) for problem in alterations(folder, result))
        used |= {f"{part.folder}/{name}" for part in (result, *result.attempts) for name in part.evidence}
    for name in sorted(member for member in members if member.startswith("cases/") and member not in used):
        yield Finding("evidence", f"no case was judged by '{name}'")

"""``submit``: packs a recorded run, verifies the archive as a stranger would, and writes it only if nothing contradicts it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from runner.judge.waiving import apply
from runner.language.expand import surroundings_for
from runner.machine import output
from runner.machine.redaction import redacted
from runner.model.diagnostics import InvalidSpecs, UsageError, shown_path
from runner.model.options import argument, flag, option
from runner.model.outcomes import ExitCode
from runner.model.results import CaseResult
from runner.record.case_files import OBSERVATION, RecordedFiles
from runner.record.journal import Run
from runner.report import replace as replace_file
from runner.run import rejudge
from runner.tools.vendor.archive import key_id, packed, read_private_key
from runner.tools.vendor.packing import Altered as Altered  # the command maps it to an exit code
from runner.tools.vendor.packing import members_of, recorded
from runner.tools.vendor.verification import NotOfTheRun, Then, loaded, verified


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    run: str = argument("RUN", "a recorded run: a folder, an id, or latest")
    out: Path | None = option("FILE", "the file to write (default: submission-<run>.tar.zst in the working folder)", reads=Path)
    key: Path | None = option("FILE", "sign with this private key: Ed25519, PEM, without a passphrase", reads=Path)
    replace: bool = flag("replace the file if it exists")
    json: bool = flag("print one object")


def _texts_of_cut_facts(folder: Path, run: Run, packed: Run, members: Mapping[str, bytes]) -> dict[str, CaseResult]:
    """Return the results whose texts change with the cut, by case id; ``folder`` is the run's, ``packed`` its journal in the submission."""
    pairs = [(old, new) for old, new in zip(run.results, packed.results, strict=True) if old.evidence != new.evidence and not old.attempts]
    if not pairs:
        return {}
    with TemporaryDirectory(prefix="torch-conformance-") as scratch:
        place = Path(scratch)
        folders = {new.folder for _, new in pairs}
        for name, data in members.items():
            if name.startswith("files/") or name.rpartition("/")[0] in folders:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(data)
        try:
            then = loaded(packed.header, [new for _, new in pairs], place)
        except (NotOfTheRun, InvalidSpecs, UsageError, ValueError):
            return {}  # the verification of the submission says what is wrong
        return {new.case_id: result for old, new in pairs for result in _told(old, new, then, folder, place)}


def _told(old: CaseResult, new: CaseResult, then: Then, folder: Path, place: Path) -> Iterator[CaseResult]:
    """Yield the result with the texts of its cut facts, where the uncut facts give the recorded texts."""
    case = then.cases.get(new.case_id)
    if case is None or old.outcome not in rejudge.BY_FACTS or OBSERVATION not in old.evidence:
        return
    backend = then.suite.backends.by_name[case.backend]
    surroundings = surroundings_for(backend, then.known, case.target)
    before, after = (
        rejudge.judged_again(case, backend, surroundings, result, RecordedFiles(root / result.folder, result.evidence), Path(result.folder))
        for result, root in ((old, folder), (new, place))
    )
    if isinstance(before, str) or isinstance(after, str) or not (len(old.verdicts) == len(before.verdicts) == len(after.verdicts)):
        return
    before, after = (apply(judged, case, surroundings, then.waivers) for judged in (before, after))
    if before.outcome is not old.outcome or not all(map(rejudge.is_same_text, old.verdicts, before.verdicts)):
        return
    # the frames of a traceback stay: they are folded by their folders
    verdicts = tuple(
        replace(verdict, expected=now.expected, observed=now.observed, detail=verdict.detail if now.kind == "raised" else now.detail)
        for verdict, now in zip(new.verdicts, after.verdicts, strict=True)
    )
    has_its_reason = not old.waivers and rejudge.is_text(old.reason, before.reason)
    yield replace(new, verdicts=verdicts, reason=after.reason if has_its_reason else new.reason)


def main(options: SubmitOptions) -> ExitCode:
    """Pack a run, verify the archive, and write it; exit 1 where something contradicts it."""
    if options.out is not None:
        _require_free(options.out, may_replace=options.replace)
    key = read_private_key(options.key) if options.key else None
    try:
        folder, run = recorded(options.run)
        members = members_of(folder, run, key, lambda cut, members: _texts_of_cut_facts(folder, run, cut, members))
    except Altered as error:
        output.note(f"torch-conformance: {error}; nothing was written")
        return ExitCode.FAILED
    try:
        data = packed(members)
    except ValueError as error:
        raise UsageError(f"{options.run}: it cannot be packed: {error}") from error
    verification = verified(data, key=key.public_key() if key else None)
    if verification.findings:
        for finding in verification.findings:
            output.note(redacted(f"{finding.check}: {finding.message}"))
        output.note("torch-conformance: this run contradicts itself; nothing was written")
        return ExitCode.FAILED
    path = options.out or Path(f"submission-{run.header.run_id}.tar.zst")
    _require_free(path, may_replace=options.replace)
    replace_file(path, data)
    stated, signer = verification.statement, key_id(key.public_key()) if key else ""
    if options.json:
        output.document(
            {
                "format": 1,
                "archive": str(path),
                "bytes": len(data),
                "files": len(members),
                "run": run.header.run_id,
                "signer": signer,
                "statement": stated.conformance.value if stated else "",
                "unjudged": list(verification.unjudged),
                "weak": list(map(redacted, verification.weak)),
            }
        )
        return ExitCode.OK
    for why in verification.unjudged:
        output.note(f"warning: not verified: {redacted(why)}")
    for reason in verification.weak:
        output.note(redacted(f"weak: {reason}"))
    signed, counted = f"signed with the key {signer[:16]}" if signer else "not signed", f"; {stated.in_words}" if stated else ""
    output.note(f"{len(members)} files, {len(data)} bytes, {signed}{counted}")
    output.raw(f"{shown_path(path)}\n")
    return ExitCode.OK


def _require_free(path: Path, *, may_replace: bool) -> None:
    if path.exists() and (not may_replace or not path.is_file()):
        hint = "add --replace, or name another" if path.is_file() else "name another"
        raise UsageError(f"--out {shown_path(path)}: this exists already ({hint})")

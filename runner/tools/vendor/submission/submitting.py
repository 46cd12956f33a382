"""``submit``: packs a recorded run, verifies the archive as a stranger would, and returns it only if nothing contradicts it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from runner.judge.waiving import apply
from runner.language.expand.cases import surroundings_for
from runner.model.diagnostics import InvalidSpecs, UsageError
from runner.model.header import RunHeader
from runner.model.options import argument, flag, option
from runner.model.results import CaseResult
from runner.record.case_files import OBSERVATION, RecordedFiles
from runner.record.journal import Run
from runner.run import rejudge
from runner.tools.vendor.submission.archive import packed
from runner.tools.vendor.submission.attestation import key_id, read_private_key
from runner.tools.vendor.submission.packing import Altered as Altered  # the command maps it to an exit code
from runner.tools.vendor.submission.packing import JUnitOf, members_of, recorded
from runner.tools.vendor.submission.verification import JUnitDifference, NotOfTheRun, Then, loaded, verified
from runner.tools.vendor.submission.verification_report import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    run: str = argument("RUN", "a recorded run: a folder, an id, or latest")
    out: Path | None = option("FILE", "the file to write (default: submission-<run>.tar.zst in the working folder)", reads=Path)
    key: Path | None = option("FILE", "sign with this private key: Ed25519, PEM, without a passphrase", reads=Path)
    replace: bool = flag("replace the file if it exists")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """An archive that is ready to be written."""

    header: RunHeader
    data: bytes
    files: int
    signer: str
    """The id of the key; empty where it is not signed."""
    verification: Verification


def submission(options: SubmitOptions, junit: JUnitOf, difference: JUnitDifference) -> Submission:
    """Return the archive of a run; raise ``UsageError`` for a run that cannot be submitted, ``Altered`` for one that was changed.

    ``junit`` writes the report of a journal, and ``difference`` compares one with a journal.
    """
    key = read_private_key(options.key) if options.key else None
    folder, run = recorded(options.run)
    members = members_of(folder, run, junit, key, lambda packed, members: texts_of_cut_facts(folder, run, packed, members))
    try:
        data = packed(members)
    except ValueError as error:
        raise UsageError(f"{options.run}: it cannot be packed: {error}") from error
    return Submission(
        header=run.header,
        data=data,
        files=len(members),
        signer=key_id(key.public_key()) if key else "",
        verification=verified(data, difference=difference, key=key.public_key() if key else None),
    )


# -- texts of cut facts -------------------------------------------------------------------------------------------


def texts_of_cut_facts(folder: Path, run: Run, packed: Run, members: Mapping[str, bytes]) -> dict[str, CaseResult]:
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

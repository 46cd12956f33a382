"""Packs a recorded run into the members of a submission."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

from runner.core.diagnostics import UsageError, shown_path
from runner.core.results import CaseResult
from runner.record.evidence import OBSERVATION, SERVICES, alterations, digest
from runner.record.journal import JournalError, Run, read_run
from runner.record.run_folder import JOURNAL, find_run, require_still
from runner.record.submission.attestation import environment_of, key_id, signed, statement_of
from runner.record.submission.layout import ATTESTATION, ENVELOPE, ENVIRONMENT, JUNIT, MANIFEST, MOST_CONTENT, member_of
from runner.record.submission.manifest import manifest_of
from runner.record.submission.portable import Portable, ReadFile, read_files
from runner.system.redaction import redacted
from runner.system.safe_open import open_untrusted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

JUnitOf: TypeAlias = Callable[[Run], bytes]
"""Writes the report of a journal."""

ToldAgain: TypeAlias = Callable[[Run, Mapping[str, bytes]], Mapping[str, CaseResult]]
"""Returns the results, by case id, whose texts the cut facts change; it is given the packed journal and the members so far."""

_MOST_FILE = 64 << 20


class Altered(Exception):
    """The files of a run are not those that it left."""


def recorded(name: str) -> tuple[Path, Run]:
    """Return the folder and the journal of a run that can be submitted; raise ``UsageError``, or ``Altered``."""
    path = find_run(name)
    require_still(name, path)
    try:
        run = read_run(path / JOURNAL)
    except JournalError as error:
        raise Altered(f"{path / JOURNAL}:{error.line}: {error.reason}") from error
    if run.footer is None or run.footer.interrupted:
        what = "was cut off" if run.footer is None else "was interrupted"
        raise UsageError(f"{name}: this run {what}; resume it with 'run ... --resume', then submit it")
    if run.header.shard:
        raise UsageError(f"{name}: this is shard {run.header.shard} of a run; merge all shards, then submit the merged run")
    for result in run.results:
        for problem in alterations(path, result):
            raise Altered(problem)
    return path, run


def members_of(path: Path, run: Run, junit: JUnitOf, key: "Ed25519PrivateKey | None", told: ToldAgain = lambda *_: {}) -> dict[str, bytes]:
    """Return the members of the submission of a run, whose folder is ``path``. ``junit`` writes its report.

    ``told`` judges: without it each text is the recorded one, without folders.


    Raises ``UsageError`` where a file that the run read is not there, or is another one now.
    """
    files = read_files(run.header, run.results)
    portable = Portable(path, files)
    members = dict(_files(run, files))
    digests: dict[str, dict[str, str]] = {}
    for result in run.results:
        for name, data in _evidence(path, result, portable):
            members[name] = data
            digests.setdefault(name.rpartition("/")[0], {})[name.rpartition("/")[2]] = digest(data)
            if sum(map(len, members.values())) > MOST_CONTENT and len(members) % 100 == 0:
                raise UsageError(f"the run has more than {MOST_CONTENT >> 20} MiB to submit")
    members[JOURNAL] = _journal(path, portable, digests, {})
    packed = _read(members[JOURNAL])
    if texts := told(packed, members):
        members[JOURNAL] = _journal(path, portable, digests, texts)
        packed = _read(members[JOURNAL])
    members[ENVIRONMENT] = environment_of(packed)
    members[JUNIT] = junit(packed)
    members[MANIFEST] = manifest_of(members)
    members[ATTESTATION] = statement_of(packed, members, key_id(key.public_key()) if key else "")
    if key is not None:
        members[ENVELOPE] = signed(members[ATTESTATION], key)
    return members


def _files(run: Run, files: Sequence[ReadFile]) -> Iterator[tuple[str, bytes]]:
    for file in files:
        try:
            with open_untrusted(file.path) as stream:
                data = stream.read(_MOST_FILE)
            member = member_of(file.packed)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(
                f"{file.name}: the run read this file, and it cannot be packed: {why} (submit where the run was made)"
            ) from error
        if digest(data) != run.header.specs[file.name]:
            raise UsageError(f"{shown_path(file.path)}: this is not the file that the run read; it has changed since (run again)")
        yield member, data


def _evidence(path: Path, result: CaseResult, portable: Portable) -> Iterator[tuple[str, bytes]]:
    """Yield the files by which a case and its attempts were judged, without folders of this machine."""
    for part in (result, *result.attempts):
        for name in part.evidence:
            with open_untrusted(path / part.folder / name) as stream:
                data = stream.read()
            if digest(data) != part.evidence[name]:
                raise Altered(f"{path / part.folder / name}: not the file that {result.case_id} was judged by")
            yield f"{part.folder}/{name}", portable.facts(data) if name in (OBSERVATION, SERVICES) else portable.code(data)


def _journal(path: Path, portable: Portable, digests: dict[str, dict[str, str]], texts: Mapping[str, CaseResult]) -> bytes:
    """Return the journal with the names of the submission, the digests of its files, and the texts of results in the place of theirs."""
    with open_untrusted(path / JOURNAL) as stream:
        lines = [portable.line(line) for line in stream]
    for line in lines:
        for part in (line, *line.get("attempts", ())):
            if part.get("evidence"):
                known = digests.get(part["folder"], {})
                part["evidence"] = {name: known.get(name, given) for name, given in part["evidence"].items()}
        if line["kind"] == "case" and (told := texts.get(line["case_id"])) is not None:
            line["reason"] = redacted(told.reason)
            for verdict, now in zip(line["verdicts"], told.verdicts, strict=True):
                verdict.update(expected=redacted(now.expected), observed=redacted(now.observed), detail=redacted(now.detail))
    return b"".join(json.dumps(line, allow_nan=False, ensure_ascii=True).encode("ascii") + b"\n" for line in lines)


def _read(journal: bytes) -> Run:
    with TemporaryDirectory(prefix="torch-conformance-") as place:
        path = Path(place) / JOURNAL
        path.write_bytes(journal)
        return read_run(path)

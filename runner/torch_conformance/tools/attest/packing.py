"""Packs a recorded run into the members of a submission, without the folders of its machine and
without secrets.

Files that the run read get the names of their members, so that a reader finds them. Text is cut by
the same rules on every line, and what was judged by is judged again before a submission is written:
a cut that changes a verdict is noticed there.
"""

import json
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from torch_conformance.judge.waiving import apply
from torch_conformance.machine import output
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.redaction import IDENTIFIERS, redacted
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError, shown_path
from torch_conformance.model.header import RunHeader
from torch_conformance.model.module_files import described, files_of
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.results import CaseResult, Judged
from torch_conformance.model.statement import in_words
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import argument, flag, option
from torch_conformance.record.case_files import OBSERVATION, SERVICES, alterations, digest
from torch_conformance.record.journal import JournalError, Run, read_run
from torch_conformance.record.run_folder import JOURNAL, find_run, require_still
from torch_conformance.report import replace as replace_file
from torch_conformance.report.junit import document_of
from torch_conformance.run import rejudge
from torch_conformance.tools.attest.archive import (
    ATTESTATION,
    ENVELOPE,
    JUNIT,
    MODULE,
    MOST_CONTENT,
    OWN,
    SHIPPED,
    changed,
    key_id,
    member_of,
    packed,
    read_key,
    repro,
    signed,
    statement_of,
)
from torch_conformance.tools.attest.verification import (
    NotOfTheRun,
    Then,
    loaded,
    modules_of,
    verified,
    write_members,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


# -- without folders and secrets -------------------------------------------------------------------

_SCRATCH = re.compile(r"/[^\s\"'\\]*?/torch-conformance[-.][a-z0-9_]{8}(?=[/\"'\\]|$)")
"""The folder for temporary files of a run."""

_KERNEL = re.compile(r"(Linux-[0-9.]+)-[\w.+-]+?(?=-x86_64|-aarch64)")
"""The local part of a kernel's release, which its builder chose."""

_FILES_OF_OPTIONS = ("backends", "waivers", "paths", "profile")
"""Options of a run whose values are files that it read."""

_SHORTEST = 2
"""Folders with fewer parts, such as ``/`` and ``/usr``, are of no machine in particular."""


class ReadFile(NamedTuple):
    """A file that the run read."""

    name: str
    """As the journal names it."""
    path: Path
    packed: str
    """Its name in the packed journal."""


def read_files(header: RunHeader, results: Sequence[CaseResult]) -> list[ReadFile]:
    """Return the files that a run read, each with its name in the submission."""
    shipped = folder("specs").resolve()
    places = {name: Path(os.path.realpath(name)) for name in header.specs}
    unpublished = [path for path in places.values() if not path.is_relative_to(shipped)]
    roots = [path.parent for path in unpublished]
    for result in results:
        # the folder that the area of a result lies in belongs to the ids of cases
        path, depth = Path(os.path.realpath(result.spec)), len(Path(result.area).parts)
        if (
            result.area
            and len(path.parents) > depth
            and not path.parents[depth].is_relative_to(shipped)
        ):
            roots.append(path.parents[depth])
    root = Path(os.path.commonpath(roots)) if roots else shipped
    files = [
        ReadFile(
            name,
            path,
            f"{SHIPPED}/{path.relative_to(shipped)}"
            if path.is_relative_to(shipped)
            else f"{OWN}/{path.relative_to(root)}",
        )
        for name, path in places.items()
    ]
    if len({file.packed for file in files}) < len(files):
        raise UsageError(
            "the run read one file under two names, and a submission has each file once (run "
            "it again with one of them)"
        )
    return files


class Portable:
    """Cuts the texts of a run; ``run`` is its folder."""

    def __init__(self, run: Path, files: Sequence[ReadFile]) -> None:
        self._names = {file.name: file.packed for file in files}
        self._by_path = {file.path: file.packed for file in files}
        places = sorted(_places(run).items(), key=lambda place: -len(place[0]))
        self._places = [
            (re.compile(re.escape(place) + r"(?=[^\w.@+-]|\.?$)"), short) for place, short in places
        ]

    def text(self, text: str) -> str:
        """Return a text without folders of this machine."""
        for pattern, short in self._places:
            text = pattern.sub(short.replace("\\", r"\\"), text)
        return _KERNEL.sub(r"\1", _SCRATCH.sub(".../scratch", text))

    def code(self, data: bytes) -> bytes:
        """Return a piece of generated code without folders of this machine and without secrets."""
        text = data.decode("utf-8", "surrogateescape")
        return redacted(self.text(text)).encode("utf-8", "surrogateescape")

    def facts(self, data: bytes, digests: Mapping[str, str]) -> bytes:
        """Return an observation without folders of this machine and without secrets; the same bytes
        where nothing is to be cut.

        ``digests`` has those of cut pieces of code, by those of the pieces that the worker wrote.
        """
        sent = json.loads(data)
        cut = changed(
            sent,
            lambda text, key: (
                text if key == "id" else digests.get(text) or redacted(self.text(text))
            ),
        )
        return data if cut == sent else json.dumps(cut, ensure_ascii=True).encode("ascii")

    def line(self, written: bytes) -> dict[str, Any]:
        """Return a line of the journal with the names of the submission."""
        record = json.loads(written)
        line: dict[str, Any] = changed(record, self._renamed)
        if line["kind"] == "header":
            line["specs"] = {
                self._names.get(name, name): digest for name, digest in record["specs"].items()
            }
            line["options"] |= {
                name: self._option(text)
                for name, text in record["options"].items()
                if name in _FILES_OF_OPTIONS
            }
        else:  # as in the files of the submission
            line |= {name: record[name] for name in ("summary", "options") if name in record}
        for recorded, waiver in zip(
            record.get("waivers", ()), line.get("waivers", ()), strict=True
        ):
            waiver["reason"] = recorded["reason"]
        return line

    def _option(self, text: str) -> str:
        try:
            words = shlex.split(text)
        except ValueError:
            return self.text(text)
        return shlex.join(
            self._by_path.get(Path(os.path.realpath(word)), self.text(word)) for word in words
        )

    def _renamed(self, text: str, key: str) -> str:
        if key in ("spec", "file"):
            return self._names.get(text) or self.text(text)
        return self.text(text) if key in IDENTIFIERS else redacted(self.text(text))


def _places(run: Path) -> dict[str, str]:
    """Return the folders of this machine, and what replaces each."""
    packages = [
        path
        for path in (*sys.path, sysconfig.get_path("purelib"))
        if path.endswith(("site-packages", "dist-packages"))
    ]
    places = {
        os.path.expanduser("~"): "~",
        str(Path.cwd()): ".",
        str(run.resolve()): ".../run",
        str(folder("specs").resolve().parent): ".../torch-conformance",
        sys.prefix: ".../venv",
        sysconfig.get_path("stdlib"): ".../python",
        **dict.fromkeys(packages, ".../site-packages"),
    }
    return {
        place: short
        for place, short in places.items()
        if len(Path(place).parts) > _SHORTEST or (short == "~" and place != "/")
    }


# -- the members -----------------------------------------------------------------------------------

_MOST_FILE = 64 << 20
_MOST_SOURCE = 1 << 20
"""The maximum size in bytes of the Python of a module that is packed."""


class Altered(Exception):
    """The files of a run are not those that it left."""


def recorded(name: str) -> tuple[Path, Run]:
    """Return the folder and the journal of a run that can be submitted; raise ``UsageError``, or
    ``Altered``.
    """
    path = find_run(name)
    require_still(name, path)
    try:
        run = read_run(path / JOURNAL)
    except JournalError as error:
        raise Altered(f"{path / JOURNAL}:{error.line}: {error.reason}") from error
    if run.footer is None or run.footer.interrupted:
        state = "was cut off" if run.footer is None else "was interrupted"
        raise UsageError(
            f"{name}: this run {state}; resume it with 'run ... --resume', then submit it"
        )
    if run.header.shard:
        raise UsageError(
            f"{name}: this is shard {run.header.shard} of a run; merge all shards, then "
            "submit the merged run"
        )
    for result in run.results:
        for problem in alterations(path, result):
            raise Altered(problem)
    return path, run


def members_of(path: Path, run: Run, key: "Ed25519PrivateKey | None") -> dict[str, bytes]:
    """Return the members of the submission of a run, whose folder is ``path``.

    Raises ``UsageError`` where a file that the run read is not there, or is another one now.
    """
    files = read_files(run.header, run.results)
    portable = Portable(path, files)
    members = {**dict(_files(run, files)), **_modules(run)}
    digests: dict[str, dict[str, str]] = {}
    for result in run.results:
        for name, data in _evidence(path, result, portable):
            members[name] = data
            digests.setdefault(name.rpartition("/")[0], {})[name.rpartition("/")[2]] = digest(data)
            if sum(map(len, members.values())) > MOST_CONTENT and len(members) % 100 == 0:
                raise UsageError(f"the run has more than {MOST_CONTENT >> 20} MiB to submit")
    members[JOURNAL] = _journal(path, portable, digests, {})
    packed = _read(members[JOURNAL])
    if texts := _texts_of_cut_facts(path, run, packed, members):
        members[JOURNAL] = _journal(path, portable, digests, texts)
        packed = _read(members[JOURNAL])
    members[JUNIT] = document_of(packed)
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
                f"{file.name}: the run read this file, and it cannot be packed: {why} (submit "
                "where the run was made)"
            ) from error
        if digest(data) != run.header.specs[file.name]:
            raise UsageError(
                f"{shown_path(file.path)}: this is not the file that the run read; it has "
                "changed since (run again)"
            )
        yield member, data


def _modules(run: Run) -> dict[str, bytes]:
    """Return the Python of the modules of backends that no distribution has, where it is that of
    the run, is small and has no secret: a name and a version say what the others are.
    """
    members: dict[str, bytes] = {}
    for name, fact in modules_of(run).items():
        top = name.partition(".")[0]
        spec = None if top in metadata.packages_distributions() else find_spec(top)
        if spec is None:
            continue
        files = files_of(name, spec.submodule_search_locations or (), spec.origin)
        sources = {name: data for name, data in files.items() if name.endswith(".py")}
        texts = (data.decode("utf-8", "surrogateescape") for data in sources.values())
        if (
            fact == described(name, files)
            and sum(map(len, sources.values())) <= _MOST_SOURCE
            and all(redacted(text) == text for text in texts)
        ):
            members |= {member_of(f"{MODULE}/{path}"): data for path, data in sources.items()}
    return members


def _evidence(path: Path, result: CaseResult, portable: Portable) -> Iterator[tuple[str, bytes]]:
    """Yield the files by which a case and its attempts were judged, without folders of this
    machine.
    """
    for part in (result, *result.attempts):
        digests: dict[str, str] = {}
        for name in sorted(part.evidence):  # code before the observation, which has its digests
            with open_untrusted(path / part.folder / name) as stream:
                data = stream.read()
            if digest(data) != part.evidence[name]:
                raise Altered(
                    f"{path / part.folder / name}: not the file that {result.case_id} was judged by"
                )
            cut = (
                portable.facts(data, digests)
                if name in (OBSERVATION, SERVICES)
                else portable.code(data)
            )
            digests[digest(data)] = digest(cut)
            yield f"{part.folder}/{name}", cut


def _journal(
    path: Path,
    portable: Portable,
    digests: dict[str, dict[str, str]],
    texts: Mapping[str, CaseResult],
) -> bytes:
    """Return the journal with the names of the submission, the digests of its files, and the texts
    of results in the place of theirs.
    """
    with open_untrusted(path / JOURNAL) as stream:
        lines = [portable.line(line) for line in stream]
    for line in lines:
        if "case_id" in line:
            line["repro"] = redacted(repro(lines[0]["options"], line["case_id"]))
        for part in (line, *line.get("attempts", ())):
            if part.get("evidence"):
                digest_of = digests.get(part["folder"], {})
                part["evidence"] = {
                    name: digest_of.get(name, old_digest)
                    for name, old_digest in part["evidence"].items()
                }
        if line["kind"] == "case" and (result := texts.get(line["case_id"])) is not None:
            line["reason"] = redacted(result.reason)
            for verdict, rejudged in zip(line["verdicts"], result.verdicts, strict=True):
                verdict.update(
                    expected=redacted(rejudged.expected),
                    observed=redacted(rejudged.observed),
                    detail=redacted(rejudged.detail),
                )
    return b"".join(
        json.dumps(line, allow_nan=False, ensure_ascii=True).encode("ascii") + b"\n"
        for line in lines
    )


def _read(journal: bytes) -> Run:
    with TemporaryDirectory(prefix="torch-conformance-") as place:
        path = Path(place) / JOURNAL
        path.write_bytes(journal)
        return read_run(path)


# -- the command -----------------------------------------------------------------------------------


@frozen
class SubmitOptions:
    """The options of ``submit``."""

    run: str = argument("RUN", "a recorded run: a folder, an id, or latest")
    out: Path | None = option(
        "FILE",
        "the file to write (default: submission-<run>.tar.zst in the working folder)",
        reads=Path,
    )
    key: Path | None = option(
        "FILE", "sign with this private key: Ed25519, PEM, without a passphrase", reads=Path
    )
    replace: bool = flag("replace the file if it exists")


def _texts_of_cut_facts(
    folder: Path, run: Run, packed: Run, members: Mapping[str, bytes]
) -> dict[str, CaseResult]:
    """Return the results whose texts change with the cut, by case id; ``folder`` is the run's,
    ``packed`` its journal in the submission.
    """
    pairs = [
        (old, new)
        for old, new in zip(run.results, packed.results, strict=True)
        if old.evidence != new.evidence and not old.attempts
    ]
    if not pairs:
        return {}
    with TemporaryDirectory(prefix="torch-conformance-") as scratch:
        place = Path(scratch)
        folders = {new.folder for _, new in pairs}
        needed = {
            name: data
            for name, data in members.items()
            if name.startswith("files/") or name.rpartition("/")[0] in folders
        }
        write_members(needed, place)
        try:
            then = loaded(packed.header, [new for _, new in pairs], place)
        except (NotOfTheRun, InvalidSpecs, UsageError, ValueError):
            return {}  # the verification of the submission says what is wrong
        return {
            new.case_id: result
            for old, new in pairs
            for result in _results_again(old, new, then, folder, place)
        }


def _results_again(
    old: CaseResult, new: CaseResult, then: Then, folder: Path, place: Path
) -> Iterator[CaseResult]:
    """Yield the result with the texts of its cut facts, where the uncut facts give the recorded
    texts.
    """
    case = then.cases.get(new.case_id)
    if case is None:
        return
    backend = then.suite.backends.by_name[case.backend]
    surroundings = rejudge.surroundings_of_part(case, backend, new, then.surroundings)
    judged = [
        judged_now
        for part, root in ((old, folder), (new, place))
        for _, judged_now in rejudge.rejudged_parts(case, backend, then.surroundings, part, root)
    ]
    results = [
        apply(judged_now, case, surroundings, then.waivers)
        for judged_now in judged
        if isinstance(judged_now, Judged) and len(judged_now.verdicts) == len(old.verdicts)
    ]
    if len(results) < 2:
        return
    before, after = results
    if before.outcome is not old.outcome or not all(
        map(rejudge.is_same_text, old.verdicts, before.verdicts)
    ):
        return
    # the frames of a traceback stay: they are folded by their folders
    verdicts = tuple(
        replace(
            verdict,
            expected=judged_now.expected,
            observed=judged_now.observed,
            detail=verdict.detail if judged_now.kind in rejudge.TRACED else judged_now.detail,
        )
        for verdict, judged_now in zip(new.verdicts, after.verdicts, strict=True)
    )
    has_its_reason = not old.waivers and rejudge.is_text(old.reason, before.reason)
    yield replace(new, verdicts=verdicts, reason=after.reason if has_its_reason else new.reason)


def main(options: SubmitOptions) -> ExitCode:
    """Pack a run, verify the archive, and write it; exit 1 where something contradicts it."""
    if options.out is not None:
        _require_free(options.out, may_replace=options.replace)
    key = read_key(options.key, private=True) if options.key else None
    try:
        folder, run = recorded(options.run)
        members = members_of(folder, run, key)
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
    for why in verification.unjudged:
        output.note(f"warning: not verified: {redacted(why)}")
    for reason in verification.weak:
        output.note(redacted(f"weak: {reason}"))
    signed = f"signed with the key {signer[:16]}" if signer else "not signed"
    counted = f"; {in_words(stated)}" if stated else ""
    output.note(f"{len(members)} files, {len(data)} bytes, {signed}{counted}")
    output.raw(f"{shown_path(path)}\n")
    return ExitCode.OK


def _require_free(path: Path, *, may_replace: bool) -> None:
    if path.exists() and (not may_replace or not path.is_file()):
        hint = "add --replace, or name another" if path.is_file() else "name another"
        raise UsageError(f"--out {shown_path(path)}: this exists already ({hint})")

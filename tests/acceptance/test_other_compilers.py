"""Compilers other than Inductor, each named for what it is. They are in ``tests/compilers``."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes import environment, prestarted, program
from tests.ran import Ran
from tests.submissions import Archive
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.record.case_files import digest
from torch_conformance.tools.attest.archive import packed, unpacked
from torch_conformance.tools.attest.verification import verified

PASS, FAIL, FELL_BACK, ERROR, UNAVAILABLE = (
    Outcome.PASS,
    Outcome.FAIL,
    Outcome.FELL_BACK,
    Outcome.ERROR,
    Outcome.UNAVAILABLE,
)

SERVED, CALLS = "served: all", "calls: {of: tests.compilers.runtime.execute}"
BOTH = f"{SERVED}, {CALLS}"
IN_BFLOAT16 = f"{SERVED}}}\n  precision: {{float32: bfloat16"
ALLOWED_BY_TYPE = "served: {{allow: {{{}: [aten.tanh, aten.exp, aten.sub]}}}}"

TABLE = [
    # the compiler, its proof, the outcome, and a part of the reason
    ("honest", BOTH, PASS, ""),
    ("returns_eager", SERVED, FELL_BACK, "aten.mm, aten.tanh, aten.exp, aten.mul, aten.sub"),
    ("returns_eager", CALLS, FELL_BACK, "a compiled call with 0"),
    ("three_in_eager", SERVED, FELL_BACK, "by ATen: aten.tanh, aten.exp, aten.sub"),
    ("three_in_eager", "served: {allow: [aten.tanh, aten.exp, aten.sub]}", PASS, ""),
    ("three_in_eager", "served: {min: 0.5}", FELL_BACK, "40% of 5 operators"),
    ("wrong_for_one", BOTH, FAIL, "close"),
    ("wrong_backward", BOTH, FAIL, "close: expected output[0] within"),
    ("calls_inductor", SERVED, FELL_BACK, "expected 0 inductor graphs"),
    ("serves_once", SERVED, FELL_BACK, "by ATen: aten.mm"),
    ("serves_once", CALLS, FELL_BACK, "a compiled call with 0"),
    ("own_thread", SERVED, FELL_BACK, "by ATen: aten.mm"),
    # who names a witness is believed that it computes
    ("calls_runtime_in_vain", CALLS, PASS, ""),
    ("calls_runtime_in_vain", BOTH, FELL_BACK, "by ATen: aten.mm"),
    ("ends_profiler", SERVED, ERROR, "torch's profiler"),
    ("dies", SERVED, UNAVAILABLE, "ended without an answer"),
    ("stored_by_shape", SERVED, FAIL, "one more call, with other numbers"),
    ("stored_by_value", SERVED, FELL_BACK, "by ATen: aten.mm"),
    ("wrong_later", SERVED, FAIL, "one more call, with other numbers"),
    ("backward_in_thread", SERVED, FELL_BACK, "step 2 (backward, line 9): every operator"),
    ("of_onednn", SERVED, FELL_BACK, "by ATen: mkldnn._linear_pointwise"),
    ("of_onednn", "served: {allow: [mkldnn._linear_pointwise]}", PASS, ""),
    ("prepacked", SERVED, FELL_BACK, "mkldnn_prepacked.conv2d_run"),
    ("timed", SERVED, FELL_BACK, "by ATen: aten.mm, aten.tanh, aten.exp, aten.mul, aten.sub"),
    ("annotated", "served: {min: 0.1}", FELL_BACK, "0% of 5 operators"),
    ("annotates_itself", SERVED, PASS, ""),
    ("annotated_backward", SERVED, FELL_BACK, "step 2 (backward, line 9): every operator"),
    ("traced", SERVED, FELL_BACK, "by ATen: aten.mm"),
    ("batched", SERVED, FELL_BACK, "0% of 5 operators"),
    ("own_operators", SERVED, FELL_BACK, "60% of 5 operators; by ATen: aten.tanh, aten.exp"),
    ("stored_by_place", SERVED, FAIL, "one more call, with other numbers"),
    ("refuses", SERVED, FAIL, "RuntimeError in phase 'run': no such kernel"),
    ("eager_backward", CALLS, FELL_BACK, "step 2 (backward, line 9)"),
    # what an entry declares is judged by that, and refuses what is wrong
    ("in_bfloat16", SERVED, FAIL, "close"),
    ("in_bfloat16", IN_BFLOAT16, PASS, ""),
    ("without_row", IN_BFLOAT16, FAIL, "products in bfloat16 as declared"),
    ("three_units_off", IN_BFLOAT16, FAIL, "products in bfloat16 as declared"),
    ("negated", IN_BFLOAT16, FAIL, "products in bfloat16 as declared"),
    ("three_in_eager", ALLOWED_BY_TYPE.format("float32"), PASS, ""),
    ("three_in_eager", ALLOWED_BY_TYPE.format("float16"), FELL_BACK, "by ATen: aten.tanh"),
    ("replaces", SERVED, ERROR, "replaced the kernel aten/exp/CPU"),
    # docs/guides/any-compiler.md lists these: who hides so is not seen
    ("past_dispatcher", SERVED, PASS, ""),
    ("in_process", SERVED, PASS, ""),
    ("without_records", SERVED, PASS, ""),
    ("while_watched", SERVED, PASS, ""),
]

BACKEND = """\
{name}:
  summary: The compiler {compiler} of the tests
  device: cpu
  module: tests.compilers.{module}
  fork: {fork}
  compile: {{backend: {compiler}}}
  proof: {{{proof}}}
"""
SPEC = """\
summary: A function and its gradient are right
backends: [{}]
function: "def fn(x, y): return (x @ y).tanh() * x.exp() - y"
inputs: [{{rand: [8, 8], requires_grad: true}}, {{rand: [8, 8]}}]
steps:
  - call: {{}}
    repeat: 2
    expect: [{{close: {{to: eager}}}}]
  - backward: {{}}
    expect: [{{close: {{to: eager}}}}]
"""


IDLE = """\
summary: The gradients of a sum are the tangent
backends: [{}]
function: "def fn(x, y): return x + y"
inputs: [{{rand: [8, 8], requires_grad: true}}, {{rand: [8, 8], requires_grad: true}}]
steps:
  - call: {{}}
    expect: [{{close: {{to: eager}}}}]
  - backward: {{}}
    expect: [{{close: {{to: eager}}}}]
"""
"""Its backward graph calls nothing."""
LEAVES_IDLE = next(number for number, row in enumerate(TABLE) if row[0] == "eager_backward")


def backend(number: int, compiler: str, proof: str) -> str:
    module, fork = (
        compiler if compiler in ("dies", "replaces") else "registered",
        "false" if number == 0 else "true",
    )
    return BACKEND.format(
        name=f"b{number}", compiler=compiler, module=module, fork=fork, proof=proof
    )


IN_CI = (0, 1, 9, 16, LEAVES_IDLE)
"""Rows that every run of the tests tries: a pass, and an answer of ATen in each call, after the
first, from a store, in the backward. Each asks a new Python for its compiler.
"""


def run(folder: Path, numbers: Sequence[int]) -> Ran:
    """Run the compilers of some rows, a backend each."""
    (folder / "s.yaml").write_text(SPEC.format(", ".join(f"b{number}" for number in numbers)))
    (folder / "b.yaml").write_text(
        "".join(backend(number, *TABLE[number][:2]) for number in numbers)
    )
    if LEAVES_IDLE in numbers:
        (folder / "idle.yaml").write_text(IDLE.format(f"b{LEAVES_IDLE}"))
    done = program(
        "run",
        *folder.glob("[is]*.yaml"),
        "--backends",
        folder / "b.yaml",
        "--out",
        folder / "out",
        env=prestarted(),
        timeout=600,
    )
    return Ran(folder / "out", done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tmp_path_factory.mktemp("compilers"), IN_CI)


@pytest.mark.torch
@pytest.mark.parametrize("number", IN_CI, ids=[" ".join(TABLE[number][:2]) for number in IN_CI])
def test_each_compiler_is_named_for_what_it_is(ran: Ran, number: int) -> None:
    outcome, part = TABLE[number][2:]
    result = ran.results[f"s[backend=b{number}]"]
    verdicts = [verdict for verdict in result.verdicts if verdict.status.value != "held"]
    assert result.outcome is outcome, verdicts
    assert part in " ".join(
        [result.reason, *(f"{verdict.kind} {verdict.observed}" for verdict in verdicts)]
    )
    assert (result.isolation == "process") is (number == 0)
    assert "profiler_start" not in result.stderr, (
        "what measures the call writes nothing into the output of the case"
    )


@pytest.mark.torch
def test_a_backward_graph_that_calls_nothing_needs_no_call(ran: Ran) -> None:
    result = ran.results[f"idle[backend=b{LEAVES_IDLE}]"]
    assert result.outcome is PASS, result.reason


@pytest.mark.nightly(
    reason="each row compiles with another compiler; five rows, one of each kind of answer, are in "
    "every run of the tests"
)
@pytest.mark.torch
def test_the_other_compilers_are_named_too(tmp_path: Path) -> None:
    numbers = [number for number in range(len(TABLE)) if number not in IN_CI]
    others = run(tmp_path, numbers)
    for number in numbers:
        test_each_compiler_is_named_for_what_it_is(others, number)


@pytest.mark.torch
def test_a_compiler_that_torch_does_not_know_is_an_error_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SPEC.format("b1"))
    (tmp_path / "b.yaml").write_text(backend(1, "honnest", SERVED))
    done = program(
        "run",
        tmp_path / "s.yaml",
        "--backends",
        tmp_path / "b.yaml",
        "--out",
        tmp_path / "out",
        env=prestarted(),
        timeout=300,
    )
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert f"{tmp_path / 'b.yaml'}:6:22" in done.stdout + done.stderr
    assert "honest" in done.stdout + done.stderr


@pytest.mark.nightly(
    reason="compiles samples of four operators twice; test_support_table "
    "makes the table of made-up "
    "results"
)
@pytest.mark.torch
def test_operators_of_a_compiler_have_a_support_table(tmp_path: Path) -> None:
    entries = [backend(1, "three_in_eager", SERVED), backend(2, "returns_eager", SERVED)]
    (tmp_path / "b.yaml").write_text(
        "".join(
            entry.replace("device:", "joins: [cpu]\n  trains: false\n  device:")
            for entry in entries
        )
    )
    cases = ("b1,op=mul", "b1,op=neg", "b1,op=t", "b2,op=mul")
    selects = [
        word
        for name in cases
        for word in ("--select", f"*-functions[backend={name},dtype=float32,dynamic=false]")
    ]
    files = [
        "--backends",
        tmp_path / "b.yaml",
        "--support",
        tmp_path / "s.json",
        "--out",
        tmp_path / "out",
    ]
    program("run", "specs/operators", *files, *selects, env=environment(), timeout=600)
    cells = json.loads((tmp_path / "s.json").read_text())["cells"]
    states = {(cell["backend"], cell["operator"]): cell["state"] for cell in cells}
    assert states == {
        ("b1", "aten.mul.Tensor"): "served",
        ("b2", "aten.mul.Tensor"): "by-aten",
        ("b1", "mul"): "served",
        ("b1", "neg"): "raised",
        ("b1", "t"): "moves-data",
        ("b2", "mul"): "by-aten",
    }


PROFILE = """\
profile: few
version: "1.0"
summary: A few core operators are computed by the compiler itself
torch: ">=2.11"
specs: [shipped]
backend: any
levels: {P0: {required: [{cases: "operators/core-forward[*,op=mul,*"}]}, P1: {required: [{cases: "operators/core-forward[*,op=mm,*"}]}}
"""  # noqa: E501 - text that is read by its lines


@pytest.mark.nightly(
    reason="compiles samples of two operators; test_profiles and "
    "test_archive_tampering have made-up "
    "runs"
)
@pytest.mark.torch
def test_a_profile_for_any_compiler_from_its_run_to_its_verification(tmp_path: Path) -> None:
    entries = [
        backend(1, "honest", SERVED),
        backend(2, "returns_eager", "served: {allow: [aten.mm, aten.mul]}"),
    ]
    # numpy's results are contiguous, also of transposed arguments
    extra = "joins: [cpu]\n  trains: false\n  layout: own\n  claims: {}.yaml\n  device:"
    (tmp_path / "b.yaml").write_text(
        "".join(
            entry.replace("device:", extra.format(number)) for number, entry in enumerate(entries)
        )
    )
    for number, operators in enumerate(("mul", "mul, mm")):
        (tmp_path / f"{number}.yaml").write_text(f"float32: [{operators}]\n")
    (tmp_path / "few.yaml").write_text(PROFILE)
    words = (
        "run",
        "--profile",
        tmp_path / "few.yaml",
        "--backends",
        tmp_path / "b.yaml",
        "--backend",
    )
    for name, computed, archive in (
        ("b1", {"served": 1, "not-claimed": 1}, "b1.zst"),
        ("b2", {"by-aten": 2}, "b2.zst"),
    ):
        done = program(*words, name, "--out", tmp_path / name, env=environment(), timeout=600)
        assert done.returncode == ExitCode.NOTHING, done.stdout + done.stderr
        assert (
            program("submit", tmp_path / name, "--out", tmp_path / archive).returncode
            == ExitCode.OK
        )
        data = (tmp_path / archive).read_bytes()
        statement = verified(data, profile=str(tmp_path / "few.yaml"), specs=[tmp_path]).statement
        assert statement is not None
        assert (statement.conformance.value, statement.computed) == ("INCOMPLETE", computed)
    changed = Archive(unpacked((tmp_path / "b1.zst").read_bytes()))
    claims = changed.members["files/own/0.yaml"] = b"float32: [mul, mm]\n"
    changed.edit(lambda line: line["specs"].update({"files/own/0.yaml": digest(claims)}), "header")
    findings = verified(packed(changed.repaired().members)).findings
    assert [finding.check for finding in findings] == ["cases"]

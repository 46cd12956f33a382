"""Kernels compiled for targets, judged by texts made by hand: what they show, what they do not, and
that they never pass.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import HERE, backend, observation, reading, seen, verdict_of
from torch_conformance.judge.mutants import with_control
from torch_conformance.judge.waiving import Waivers, apply
from torch_conformance.language.backends import load_backends
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import load
from torch_conformance.language.waivers import load_waivers
from torch_conformance.model.case import Case
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.expectation import Reading, Status
from torch_conformance.model.outcomes import ExitCode, Outcome, exit_code
from torch_conformance.model.results import CaseResult, executed
from torch_conformance.model.targets import TARGETS
from torch_conformance.plan.worker_plan import make_plan
from torch_conformance.record.journal import problem_of_result
from torch_conformance.tools.offline import problems_of_texts
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.compiled_kernels import (
    NotReported,
    of_compiler,
    with_amount,
)

AMD, NVIDIA = TARGETS["hip:gfx942"], TARGETS["cuda:sm_90"]
HERE_AMD = surroundings_for(backend("offline"), HERE, AMD.name)
HERE_NVIDIA = surroundings_for(backend("offline"), HERE, NVIDIA.name)

AMDGCN = """\
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
	.globl	copy ; v_mfma_f32_32x32x8_bf16 in a comment
copy:
	global_load_dwordx4 v[0:3], v0, s[0:1]
	.amdhsa_kernel copy
	.end_amdhsa_kernel
	.amdgpu_metadata
    .private_segment_fixed_size: 16
    .sgpr_count:     21
    .sgpr_spill_count: 2
    .vgpr_count:     10
    .vgpr_spill_count: 3
"""
PTX = """\
//
.version 8.7
.target sm_90a
.visible .entry copy(
)
{
	ld.global.v4.b32 {%r1}, [ %rd1 + 0 ]; // ld.global.v8
}
"""
PTXAS = """\
ptxas info    : Compiling entry function 'copy' for 'sm_90a'
ptxas info    : Function properties for copy
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers
"""
OF_AMD = (
    "tt.load // ttir",
    'module attributes {ttg.target = "hip:gfx942"} {',
    "define void @copy()",
    AMDGCN,
)
OF_NVIDIA = (
    "tt.load // ttir",
    'module attributes {ttg.target = "cuda:90"} {',
    "define void @copy()",
    PTX,
    PTXAS,
)

SPEC = """\
summary: A copy of an array is compiled for GPUs
targets: [hip:gfx942, cuda:sm_90]
matrix: {size: [64, 128]}
exclude: [{target: cuda:sm_90, size: 128, reason: one size is enough}]
prelude: |
  import triton
  import triton.language as tl
triton:
  source: |
    @triton.jit
    def copy(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i))
  signature: {x: "*fp32", out: "*fp32"}
  constexprs: {BLOCK: "{{ size }}"}
  options: [{num_warps: 1}, {when: {vendor: amd}, set: {waves_per_eu: 2}}]
expect:
  - filecheck: {stage: amdgcn, checks: "CHECK: global_load_dwordx4"}
  - resources: {registers: {max: 10}, shared: {max: target}}
"""
CONTROL = (
    'control: {triton: {constexprs: {BLOCK: 32}, options: {num_warps: 2}, source: "SOURCE"}, '
    "fails: [filecheck]}\n"
)


def cases_of(tmp_path: Path, text: str = SPEC) -> list[Case]:
    (tmp_path / "copy.yaml").write_text(text)
    return list(load([tmp_path / "copy.yaml"]).cases)


def facts(
    texts: tuple[str, ...] = OF_AMD, here: Surroundings = HERE_AMD, **measured: Any
) -> Reading:
    return reading(here, code=texts, measured={"shared": 0, **measured})


def judged(kind: str, body: Any, known: Reading) -> list[tuple[Status, str]]:
    return [(one.status, one.observed) for one in EXPECTATIONS[kind].parse(body).judge(known)]


def result_of(case: Case, texts: tuple[str, ...] = OF_AMD, **step: Any) -> CaseResult:
    """Judge a case on texts."""
    code = {(0, index): text for index, text in enumerate(texts)}
    sent = observation(seen(code=len(texts), measured={"1": {"shared": 1}}, **step), id=case.id)
    here = surroundings_for(backend("offline"), HERE, case.target)
    return verdict_of(case, sent, by=backend("offline"), code=code, here=here)


# -- the language ----------------------------------------------------------------------------------


def test_the_target_is_the_first_key_after_the_backend(tmp_path: Path) -> None:
    assert [case.id for case in cases_of(tmp_path)] == [
        "copy[backend=offline,target=hip%3Agfx942,size=64]",
        "copy[backend=offline,target=hip%3Agfx942,size=128]",
        "copy[backend=offline,target=cuda%3Asm_90,size=64]",
    ]


def test_conditions_see_the_target_and_not_the_machine(tmp_path: Path) -> None:
    here = replace(HERE, vendor="intel", arch="other")
    arguments = {}
    for case in cases_of(tmp_path):
        plan = make_plan(case, surroundings_for(backend("offline"), here, case.target), {})
        arguments[case.target] = plan["steps"][0]["arguments"]
        assert plan["target"] == case.target
    assert arguments["hip:gfx942"]["options"] == {"num_warps": 1, "waves_per_eu": 2}
    assert arguments["cuda:sm_90"]["options"] == {"num_warps": 1}
    assert arguments["cuda:sm_90"]["kernel"] == "copy"


def test_a_control_changes_source_values_and_options(tmp_path: Path) -> None:
    case = with_control(cases_of(tmp_path, SPEC + CONTROL)[0])
    arguments = make_plan(case, HERE_AMD, {})["steps"][0]["arguments"]
    assert arguments["source"]["text"] == "SOURCE"
    assert arguments["constexprs"] == {"BLOCK": 32}
    assert arguments["options"] == {"num_warps": 2, "waves_per_eu": 2}


# -- texts of a compiler ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "kernel", "problem"),
    [
        (OF_AMD[:3], "copy", "3 texts, where ttir, ttgir, llir, amdgcn are made"),
        ((*OF_AMD[:3], " "), "copy", "3 texts"),
        (OF_AMD, "other", "has no kernel 'other'"),
        ((*OF_AMD[:3], AMDGCN.replace("gfx942", "gfx950")), "copy", "amdgcn is for gfx950"),
        (
            (*OF_AMD[:3], AMDGCN.replace("\t.amdgcn", "; .amdgcn")),
            "copy",
            "amdgcn is for no target",
        ),
        (
            (*OF_AMD[:3], AMDGCN.replace("\t.amdhsa_kernel", "; .amdhsa_kernel")),
            "copy",
            "has no kernel",
        ),
        (
            (OF_AMD[0], "module {}", *OF_AMD[2:]),
            "copy",
            'ttgir does not say ttg.target = "hip:gfx942"',
        ),
        (OF_NVIDIA, "copy", "ttgir does not say"),
    ],
)
def test_texts_of_something_else_are_refused(
    texts: tuple[str, ...], kernel: str, problem: str
) -> None:
    assert problem in next(problems_of_texts(AMD, [kernel], texts))


@pytest.mark.parametrize(
    ("named", "fits"),
    [("sm_90a", True), ("sm_90", True), ("sm_90f", True), ("sm_900", False), ("sm_100a", False)],
)
def test_a_letter_after_an_nvidia_architecture_is_the_same_gpu(named: str, fits: bool) -> None:
    texts = (*OF_NVIDIA[:3], PTX.replace("sm_90a", named), PTXAS)
    assert bool(list(problems_of_texts(NVIDIA, ["copy"], texts))) is not fits


@pytest.mark.parametrize(
    ("vendor", "texts", "amounts"),
    [
        ("amd", OF_AMD, {"registers": 10, "spills": 5, "stack": 16}),
        ("nvidia", OF_NVIDIA, {"registers": 26, "spills": 16, "stack": 8}),
    ],
)
def test_resources_are_read_from_what_the_compiler_reports(
    vendor: str, texts: tuple[str, ...], amounts: Mapping[str, int]
) -> None:
    for name, amount in amounts.items():
        assert of_compiler(name, vendor, texts) == amount
        assert of_compiler(name, vendor, with_amount(name, vendor, texts, 77)) == 77


@pytest.mark.parametrize(
    ("vendor", "texts", "why"),
    [
        ("nvidia", OF_NVIDIA[:4], "missing"),
        ("nvidia", (*OF_NVIDIA[:4], PTXAS + PTXAS), "2 times"),
        ("nvidia", (*OF_NVIDIA[:4], ""), "0 times"),
        ("amd", (*OF_AMD[:3], ""), "0 times"),
    ],
)
def test_a_report_that_is_missing_or_doubtful_is_no_number(
    vendor: str, texts: tuple[str, ...], why: str
) -> None:
    with pytest.raises(NotReported, match=why):
        of_compiler("registers", vendor, texts)


# -- expectations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"registers": {"max": 10}}, Status.HELD),
        ({"registers": {"max": 9}}, Status.FAILED),
        ({"registers": 10}, Status.HELD),
        ({"spills": 5}, Status.HELD),
        ({"spills": 0}, Status.FAILED),
        ({"shared": {"max": "target"}}, Status.HELD),
        ({"shared": 0}, Status.FAILED),
        ({"spills": 0, "when": {"vendor": "nvidia"}}, Status.NOT_APPLICABLE),
    ],
)
def test_resources(body: Any, status: Status) -> None:
    assert [found for found, _ in judged("resources", body, facts(shared=65536))] == [status]


def test_the_bound_of_a_target_is_its_own() -> None:
    body = {"shared": {"max": "target"}}
    assert judged("resources", body, facts(shared=65537)) == [(Status.FAILED, "65537")]
    assert judged("resources", body, facts(OF_NVIDIA, HERE_NVIDIA, shared=232448)) == [
        (Status.HELD, "232448")
    ]
    assert judged("resources", body, facts(OF_NVIDIA, HERE_NVIDIA, shared=232449)) == [
        (Status.FAILED, "232449")
    ]


@pytest.mark.parametrize(
    ("wanted", "found", "status"),
    [
        (4, 4, Status.HELD),
        (4, 8, Status.FAILED),
        (1, True, Status.FAILED),
        (True, 1, Status.FAILED),
        ("none", "none", Status.HELD),
        ([1, 1], [1, 1], Status.HELD),
        ([{"when": {"vendor": "amd"}, "value": 16}], 16, Status.HELD),
        ([{"when": {"vendor": "nvidia"}, "value": 16}], 0, Status.NOT_APPLICABLE),
    ],
)
def test_metadata(wanted: Any, found: Any, status: Status) -> None:
    assert [
        one for one, _ in judged("metadata", {"num_warps": wanted}, facts(num_warps=found))
    ] == [status]


@pytest.mark.parametrize(
    ("stage", "checks", "status"),
    [
        ("amdgcn", "CHECK: global_load_dwordx4", Status.HELD),
        ("amdgcn", "CHECK: v_mfma", Status.FAILED),
        ("llir", "CHECK: define void @copy", Status.HELD),
        ("ttir", "CHECK: // ttir", Status.FAILED),
        ("ptx", "CHECK: anything", Status.NOT_APPLICABLE),
    ],
)
def test_filecheck_of_a_stage(stage: str, checks: str, status: Status) -> None:
    assert [
        found for found, _ in judged("filecheck", {"stage": stage, "checks": checks}, facts())
    ] == [status]


def test_an_empty_stage_is_an_error() -> None:
    body = {"stage": "amdgcn", "checks": "CHECK: add"}
    assert [found for found, _ in judged("filecheck", body, facts((*OF_AMD[:3], "; a\n")))] == [
        Status.ERROR
    ]
    assert [found for found, _ in judged("filecheck", body, facts(()))] == [Status.ERROR]


@pytest.mark.parametrize(
    ("kind", "body", "here", "texts"),
    [
        (
            "resources",
            {
                "registers": {"max": 10},
                "spills": {"max": 5},
                "stack": 16,
                "shared": {"max": "target"},
            },
            HERE_AMD,
            OF_AMD,
        ),
        (
            "resources",
            {"registers": 26, "spills": 16, "stack": 8, "shared": 7},
            HERE_NVIDIA,
            OF_NVIDIA,
        ),
        (
            "metadata",
            {"num_warps": 4, "name": "copy", "flag": True, "shape": [1]},
            HERE_AMD,
            OF_AMD,
        ),
        (
            "filecheck",
            {"stage": "amdgcn", "checks": "CHECK: global_load\nCHECK-NOT: spill_now"},
            HERE_AMD,
            OF_AMD,
        ),
    ],
)
def test_every_mutant_is_refused(
    kind: str, body: Any, here: Surroundings, texts: tuple[str, ...]
) -> None:
    check = EXPECTATIONS[kind].parse(body)
    known = facts(texts, here, shared=7, num_warps=4, name="copy", flag=True, shape=[1])
    assert {one.status for one in check.judge(known)} == {Status.HELD}
    mutants = [mutant for mutant in check.mutants(known) if mutant.facts is not None]
    assert len(mutants) >= len(check.judge(known))
    for mutant in mutants:
        assert mutant.facts is not None
        (found,) = (one for one in check.judge(mutant.facts) if one.leaf == mutant.leaf)
        assert found.status in (Status.FAILED, Status.ERROR), mutant


# -- outcomes --------------------------------------------------------------------------------------


def test_an_offline_case_never_passes(tmp_path: Path) -> None:
    result = result_of(cases_of(tmp_path)[0])
    assert (result.outcome, result.level, result.target) == (
        Outcome.OFFLINE_PASS,
        "O3",
        "hip:gfx942",
    )
    assert result.reason == "compiled for hip:gfx942 and not executed; evidence O3 instructions"
    assert not result.is_executed


def test_a_kernel_that_does_not_compile_is_an_offline_failure(tmp_path: Path) -> None:
    raised = {
        "type": "triton.CompilationError",
        "ancestors": [],
        "message": "no",
        "traceback": "",
        "phase": "kernel build",
    }
    result = result_of(cases_of(tmp_path)[0], (), raised=raised)
    assert (result.outcome, result.failure_type) == (Outcome.OFFLINE_FAIL, "raised")


@pytest.mark.parametrize(
    "texts", [(), OF_AMD[:2], (*OF_AMD[:3], AMDGCN.replace("gfx942", "gfx950"))]
)
def test_code_of_another_target_claims_nothing(tmp_path: Path, texts: tuple[str, ...]) -> None:
    result = result_of(cases_of(tmp_path)[0], texts)
    assert result.outcome is Outcome.ERROR
    assert not result.is_executed


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.OFFLINE_PASS, ExitCode.NOTHING),
        (Outcome.XFAIL, ExitCode.NOTHING),
        (Outcome.OFFLINE_FAIL, ExitCode.FAILED),
        (Outcome.XPASS, ExitCode.FAILED),
        (Outcome.CRASH, ExitCode.FAILED),
    ],
)
def test_no_outcome_of_an_offline_case_is_a_success(
    tmp_path: Path, outcome: Outcome, code: ExitCode
) -> None:
    result = replace(result_of(cases_of(tmp_path)[0]), outcome=outcome)
    assert executed([result]) == 0
    assert exit_code([outcome], 1, executed=executed([result])) is code
    assert exit_code([outcome, Outcome.PASS], 1, executed=1) is (
        ExitCode.OK if code is ExitCode.NOTHING else code
    )


WAIVER = """\
waivers:
  - cases: copy*hip*
    failure: {type: filecheck, match: dwordx4}
    reason: The compiler loads four bytes at a time
    issue: https://example.org/issues/1
    until: 2999-12-31
"""


def test_a_waived_offline_failure_is_known_and_still_not_executed(tmp_path: Path) -> None:
    (tmp_path / "known.yaml").write_text(WAIVER)
    waivers = Waivers(
        load_waivers([tmp_path / "known.yaml"], load_backends()), today=date(2026, 1, 1)
    )
    case = cases_of(tmp_path)[0]
    failed = apply(
        result_of(case, (*OF_AMD[:3], AMDGCN.replace("dwordx4", "dword"))), case, HERE_AMD, waivers
    )
    passed = apply(result_of(case), case, HERE_AMD, waivers)
    assert (failed.outcome, failed.is_executed) == (Outcome.XFAIL, False)
    assert (passed.outcome, passed.is_executed, passed.level) == (Outcome.XPASS, False, "")
    for result in (failed, passed):
        recorded = replace(result, folder="cases/00001", evidence={"observation.json": "e" * 64})
        assert problem_of_result(recorded, retries=0, repeat=1) == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"outcome": Outcome.PASS, "reason": "", "level": ""},
            "PASS (), though its verdicts and waivers give OFFLINE_PASS ()",
        ),
        ({"target": ""}, "OFFLINE_PASS (), though its verdicts and waivers give PASS ()"),
        (
            {"outcome": Outcome.OFFLINE_FAIL},
            "OFFLINE_FAIL (), though its verdicts and waivers give OFFLINE_PASS ()",
        ),
    ],
)
def test_a_journal_cannot_turn_an_offline_case_into_more(
    tmp_path: Path, changes: Mapping[str, Any], problem: str
) -> None:
    result = replace(
        result_of(cases_of(tmp_path)[0]),
        folder="cases/00001",
        evidence={"observation.json": "e" * 64},
    )
    assert problem_of_result(result, retries=0, repeat=1) == ""
    assert problem_of_result(replace(result, **changes), retries=0, repeat=1) == problem

"""Who computed each operator and type, from results alone: states, one entry a cause, the three
forms, and what changed between runs.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import backend, case, expected, observation, seen, step, verdict_of
from tests.json_schemas import validator
from tests.recorded import recorded, run_of, write_run
from tests.unit.report.test_events import Go, execution, go
from torch_conformance.cli.parser import main
from torch_conformance.model.expectation import WrongValue
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult, OperatorCalls
from torch_conformance.report.support_table import aspects_of
from torch_conformance.report.terminal import report_of

__all__ = ["go"]  # a fixture of test_events

SUITE = "operators/all"
RAISED = {
    "expected": "sample 0: no exception",
    "observed": "E in phase 'trace': no node 17 at 0x7f",
}


def of_operator(
    name: str,
    outcome: Outcome = Outcome.PASS,
    by_aten: int = 0,
    *,
    dtype: str = "float32",
    **changes: Any,
) -> CaseResult:
    """Return the result of a case of an operator of whose four operators ATen ran some."""
    names = {f"aten.{name}": by_aten} if by_aten else {}
    case_id = f"{SUITE}[backend=other,op={name},dtype={dtype},dynamic=false]"
    return recorded(
        "all", outcome, case_id=case_id, **{"eager_operators": 4, "by_aten": names, **changes}
    )


def calls(*places: tuple[str, int, int], operator: str = "aten.cos.default") -> Any:
    """Return the calls of an operator by place: how many there are, and how many ATen made."""
    return tuple(
        OperatorCalls(operator=operator, place=place, calls=count, by_aten=left)
        for place, count, left in places
    )


ONE_OF_EIGHT = calls(
    *((f"sample {n}" + ": 0: float32[]" * (n == 3), 1, int(n == 3)) for n in range(8))
)
EACH_OF_EIGHT = (
    *calls(*((f"sample {n}: 0: float32[]", 1, 1) for n in range(8))),
    *calls(*((f"sample {n}", 7, 0) for n in range(8)), operator="aten.mul.Tensor"),
)
WRONG = of_operator("wrong", Outcome.FAIL)
MIXED = of_operator("mixed", Outcome.FAIL, **RAISED)
MIXED = replace(
    MIXED,
    verdicts=(
        replace(
            MIXED.verdicts[0],
            wrong=(WrongValue(message=f"expected {RAISED['expected']}"), WrongValue(message="0")),
        ),
    ),
)
FELL_BACK = of_operator("tan", Outcome.FELL_BACK)
CELLS: Mapping[str, tuple[CaseResult, str]] = {
    "all by the compiler": (of_operator("add"), "served"),
    "some by ATen": (of_operator("cos", Outcome.FELL_BACK, 3), "partly"),
    "two of ATen for one of eager": (
        replace(
            of_operator("rms", Outcome.FELL_BACK, 1), by_aten={"aten.mean": 1, "aten.rsqrt": 0}
        ),
        "partly",
    ),
    "all of one sample in eight": (
        of_operator("asin", Outcome.FELL_BACK, 1, eager_operators=8, operators=ONE_OF_EIGHT),
        "some-samples",
    ),
    "one operator in each of eight samples": (
        of_operator("asinh", Outcome.FELL_BACK, 8, eager_operators=64, operators=EACH_OF_EIGHT),
        "partly",
    ),
    "allowed to ATen": (of_operator("mm", Outcome.PASS, 4), "by-aten"),
    "all by ATen": (of_operator("log", Outcome.FELL_BACK, 4), "by-aten"),
    "moves data": (of_operator("t", eager_operators=0), "moves-data"),
    "moves data, not by what Dynamo captured": (
        of_operator("view", Outcome.FELL_BACK, eager_operators=0),
        "fell-back",
    ),
    "Dynamo gave up": (of_operator("gave-up", Outcome.FELL_BACK), "fell-back"),
    "not measured": (of_operator("unmeasured", eager_operators=-1), "right"),
    "a waived wrong number": (of_operator("exp", Outcome.XFAIL, 4), "wrong"),
    "waived, by ATen": (
        of_operator(
            "tan",
            Outcome.XFAIL,
            4,
            verdicts=FELL_BACK.verdicts,
            failure_type=FELL_BACK.failure_type,
        ),
        "by-aten",
    ),
    "a wrong number": (WRONG, "wrong"),
    "a wrong number, by ATen": (of_operator("sin", Outcome.FAIL, 4), "wrong"),
    "one sample raised, one is wrong": (MIXED, "wrong"),
    "an exception": (of_operator("fft", Outcome.FAIL, eager_operators=-1, **RAISED), "raised"),
    "a crash": (of_operator("crashes", Outcome.CRASH, eager_operators=-1), "raised"),
    "no end": (of_operator("hangs", Outcome.TIMEOUT, eager_operators=-1), "raised"),
    "not claimed": (
        of_operator(
            "qr", Outcome.UNAVAILABLE, reason="not claimed by other: gradients", eager_operators=-1
        ),
        "not-claimed",
    ),
    "lacks a module": (
        of_operator("lu", Outcome.UNAVAILABLE, reason="no module", eager_operators=-1),
        "not-tried",
    ),
    "not judged": (of_operator("item", Outcome.ERROR, eager_operators=-1), "not-tried"),
    "not run": (of_operator("late", Outcome.NOT_RUN, eager_operators=-1), "not-tried"),
}


def table(folder: Path, *results: CaseResult) -> Any:
    """Return the table that ``report`` writes of a recorded run, as JSON."""
    write_run(folder, run_of(*results))
    assert main(["report", str(folder), "--support", str(folder / "s.json")]) == ExitCode.OK
    document = json.loads((folder / "s.json").read_text())
    validator("support").validate(document)
    return document


def test_the_state_of_each_cell(tmp_path: Path) -> None:
    document = table(
        tmp_path / "run", *(result for result, _ in CELLS.values()), recorded("no-operator")
    )
    cells = [cell for cell in document["cells"] if "by ATen overload" not in cell["suite"]]
    states = [cell["state"] for cell in cells]
    assert dict(zip(CELLS, states, strict=True)) == {
        name: state for name, (_, state) in CELLS.items()
    }
    counts, _ = document["counts"]
    assert (counts["backend"], counts["suite"]) == ("other", f"{SUITE}[dynamic=false]")
    assert counts["states"] == {state: states.count(state) for state in dict.fromkeys(states)}
    assert cells[1]["by_aten"] == {"aten.cos": 3}
    (of_some,) = (cell for cell in cells if cell["state"] == "some-samples")
    assert (of_some["samples"], of_some["samples_by_aten"]) == (
        8,
        [{"sample": 3, "arguments": "0: float32[]"}],
    )


def wrong(kind: str, *values: tuple[str, str], outcome: Outcome = Outcome.FAIL) -> CaseResult:
    """Return a result with one failed verdict, which refuses values: message and aspect."""
    result = of_operator("cos", outcome)
    refused = tuple(WrongValue(message=message, aspect=aspect) for message, aspect in values)
    return replace(
        result, verdicts=tuple(replace(one, kind=kind, wrong=refused) for one in result.verdicts)
    )


LATER, EARLIER = (
    f"expected sample 0: no exception, observed a.B in phase '{phase}': no"
    for phase in ("run", "trace")
)


@pytest.mark.parametrize(
    ("result", "aspects"),
    [
        (wrong("close", ("a", "strides"), ("b", "numbers"), ("c", "strides")), "strides numbers"),
        (wrong("close", (LATER, ""), (EARLIER, "")), "while-running while-compiling"),
        (wrong("close"), "structure"),
        (wrong("side-effects", ("a buffer", "numbers")), "side-effect"),
        (wrong("side-effects", ("a view", "aliasing")), "aliasing"),
        (wrong("side-effects", ("expected RNG state of cpu unchanged", "")), "random-stream"),
        (wrong("counter"), "counter"),
        (of_operator("cos", Outcome.CRASH), "crash"),
        (of_operator("cos", Outcome.TIMEOUT), "hang"),
        (of_operator("cos", Outcome.FELL_BACK, 1), ""),
    ],
)
def test_what_is_wrong_is_told_apart(result: CaseResult, aspects: str) -> None:
    assert [aspect.replace(" ", "-") for aspect in aspects_of(result)] == aspects.split()


PLACES = calls(("b.yaml:12", 4, 1), ("b.yaml:9", 2, 0), ("", 0, 0))[:2]
MODEL = recorded(
    "model",
    Outcome.FELL_BACK,
    backend="other",
    eager_operators=6,
    by_aten={"aten.cos": 1},
    operators=PLACES,
)
SUITE_CALLS = (
    of_operator("cos", operators=calls(("sample 0", 2, 0))),
    of_operator("cosh", Outcome.FELL_BACK, 1, operators=calls(("sample 0", 3, 3))),
    of_operator("sin", Outcome.FAIL, operators=calls(("sample 0", 9, 0))),
    of_operator("sin", dtype="int64", operators=calls(("sample 0", 1, 0))),
)


def test_operators_of_a_model_have_places_and_those_of_a_suite_types(tmp_path: Path) -> None:
    cells = table(tmp_path / "run", MODEL, *SUITE_CALLS)["cells"]
    found = [
        (cell["suite"], cell["type"], cell["place"], cell["state"], cell["eager_operators"])
        for cell in cells
        if cell["operator"] == "aten.cos.default"
    ]
    overloads = f"{SUITE}[dynamic=false] by ATen overload"
    assert found == [
        ("area/model", "", "b.yaml:12", "partly", 4),
        ("area/model", "", "b.yaml:9", "served", 2),
        # not those of a wrong answer, where others are right
        (overloads, "float32", "", "partly", 5),
        (overloads, "int64", "", "served", 1),
    ]
    out = tmp_path / "s.md"
    assert main(["report", str(tmp_path / "run"), "--support", str(out)]) == ExitCode.OK
    lines = out.read_text().splitlines()
    assert "| `aten.cos.default` | `b.yaml:12` | partly: `1 of 4 by ATen` |" in lines
    assert "| `aten.cos.default` | partly: `3 of 5 by ATen` | served: `1 call` |" in lines
    rows = [line.split("`")[3] for line in lines if "| `b.yaml" in line]
    assert rows == ["b.yaml:9", "b.yaml:12"]
    assert "support by other of the operators of other specs: 1 served, 1 partly" in shown(MODEL)


def test_the_table_names_the_compiler_and_the_greatest_error(tmp_path: Path) -> None:
    held = of_operator("add")
    held = replace(held, verdicts=tuple(replace(one, worst=0.375) for one in held.verdicts))
    assert held.verdicts
    run = run_of(held, environment={"torch": "2.13.0", "other.package": "vendor 1.2"})
    write_run(tmp_path / "run", run)
    for name in ("s.md", "s.json"):
        out = str(tmp_path / name)
        assert main(["report", str(tmp_path / "run"), "--support", out]) == ExitCode.OK
    lines = (tmp_path / "s.md").read_text().splitlines()
    assert "Compiler `other`: `vendor 1.2`." in lines
    assert "| `add` | served (0.38) |" in lines
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["compilers"] == {"other": "vendor 1.2"}
    assert document["cells"][0]["error"] == 0.375


CONVERSION = "Model wasn't fully converted. -- No conversion rule found for operations: {}"
DIMENSION = (
    "Check 'merge()' failed at src/core/{}:65: While validating 'MatMul_3 "
    "(Parameter_1[0]:f32{}) -> ()'"
)


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("no node 17 at 0x7f", "no node 3 at 0xa", True),
        (CONVERSION.format("aten::fft"), CONVERSION.format("aten::qr, aten::mm"), True),
        (DIMENSION.format("matmul.hpp", "[2,3]"), DIMENSION.format("matmul.hpp", "[4]"), True),
        (
            "KeyError: <OpOverload(op='aten.sum', overload='default')>",
            "KeyError: <OpOverload(op='aten.to', overload='Tensor')>",
            True,
        ),
        ("cannot open /tmp/a1/x.so", "cannot open /tmp/b/x.so", True),
        (CONVERSION.format("aten::fft"), "no rule", False),
        (DIMENSION.format("matmul.hpp", "[2,3]"), DIMENSION.format("add.hpp", "[2,3]"), False),
        ("no float32", "no float64", False),
        ("cannot open /tmp/x.so", "cannot open /tmp/y.so", False),
    ],
)
def test_exceptions_are_folded_by_their_cause(
    tmp_path: Path, first: str, second: str, is_one: bool
) -> None:
    raised = [
        of_operator(f"op{number}", Outcome.FAIL, **{**RAISED, "observed": text})
        for number, text in enumerate((first, second))
    ]
    raised[1] = replace(
        raised[1],
        verdicts=(*raised[1].verdicts, *of_operator("log", Outcome.FELL_BACK, 4).verdicts),
    )
    sizes = [len(cause["cases"]) for cause in table(tmp_path / "run", *raised, WRONG)["raised"]]
    assert sizes == ([2] if is_one else [1, 1])


def test_markdown_has_a_row_for_each_operator_and_no_text_that_drives_it(tmp_path: Path) -> None:
    both = [
        of_operator("log", Outcome.FELL_BACK, 4),
        of_operator("log", dtype="int64"),
        of_operator("add", Outcome.FAIL, reason="<b>`|x"),
    ]
    write_run(tmp_path / "run", run_of(*both))
    assert (
        main(["report", str(tmp_path / "run"), "--support", str(tmp_path / "s.md")]) == ExitCode.OK
    )
    lines = (tmp_path / "s.md").read_text().splitlines()
    assert "| operator | `float32` | `int64` |" in lines
    assert "| `log` | by-aten: `aten.log` | served |" in lines
    assert "| `add` | wrong: `counter` |  |" in lines
    assert not any("<b>" in line and "`<b>'/x`" not in line for line in lines)


# -- the terminal ----------------------------------------------------------------------------------


def shown(*results: CaseResult) -> list[str]:
    return report_of(replace(run_of(*results), footer=None), junit="junit.xml").splitlines()


def test_a_cause_is_one_entry_of_the_terminal() -> None:
    fell_back = [
        of_operator(f"op{number}", Outcome.FELL_BACK, 4, observed=f"{number} graphs")
        for number in range(10)
    ]
    lines = shown(
        *fell_back, WRONG, of_operator("gave-up", Outcome.FELL_BACK, 4, observed="it ran eagerly")
    )
    assert [line.split()[0] for line in lines if line.startswith(("FELL_BACK", "FAIL"))] == [
        "FELL_BACK",
        "FAIL",
        "FELL_BACK",
    ]
    assert "10 cases have this cause; the others:" in lines
    (others,) = (line for line in lines if "op=*" in line)
    assert all(f"op{number} (aten.op{number})" in others for number in range(1, 10))
    assert f"support by other of {SUITE}[dynamic=false]: 11 by-aten, 1 wrong" in lines


@pytest.mark.parametrize(
    ("changes", "entries"),
    [
        ({}, 1),
        ({"observed": "another number"}, 2),
        ({"position": replace(WRONG.position, line=9)}, 2),
        ({"outcome": Outcome.XPASS}, 2),
    ],
)
def test_other_failures_are_one_entry_where_all_that_they_say_is_equal(
    changes: dict[str, Any], entries: int
) -> None:
    outcome = changes.pop("outcome", Outcome.FAIL)
    failed = [recorded("one", Outcome.FAIL), recorded("one", outcome, backend="cuda", **changes)]
    if "position" in changes:
        failed[1] = replace(
            failed[1], verdicts=(replace(failed[1].verdicts[0], position=changes["position"]),)
        )
    lines = shown(*failed)
    assert sum(line.startswith(("FAIL", "XPASS")) for line in lines[:-4]) == entries
    assert sum("'area/one[backend=cuda]'" in line for line in lines) == 1


# -- runs ------------------------------------------------------------------------------------------


def test_diff_shows_the_cells_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (
        of_operator("add"),
        of_operator("log", Outcome.FELL_BACK, 4),
        of_operator("mm", Outcome.PASS, 4),
        recorded("one"),
    )
    after = (
        of_operator("add"),
        of_operator("log"),
        of_operator("mm", Outcome.FAIL),
        of_operator("cos"),
    )
    names = [
        str(write_run(tmp_path / name, run_of(*results)))
        for name, results in (("a", before), ("b", after))
    ]
    assert main(["diff", *names, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    validator("diff").validate(document)
    sides = [
        [
            entry[side] and (entry[side]["operator"], entry[side]["state"])
            for side in ("before", "after")
        ]
        for entry in document["support"]
    ]
    assert sides == [
        [("log", "by-aten"), ("log", "served")],
        [("mm", "by-aten"), ("mm", "wrong")],
        [None, ("cos", "served")],
    ]
    assert main(["diff", *names, "--html", str(tmp_path / "diff.html")]) == ExitCode.OK
    assert "log float32" in capsys.readouterr().out
    page = " ".join(re.sub("<[^>]*>", " ", (tmp_path / "diff.html").read_text("utf-8")).split())
    for row in (
        "log float32 by-aten aten.log served",
        "mm float32 by-aten aten.mm wrong counter",
        "cos float32 no case served",
    ):
        assert f" {row} other: {SUITE}[dynamic=false]" in page


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (of_operator("cos"), of_operator("cos"), 0),
        (of_operator("cos"), of_operator("cos", Outcome.FELL_BACK, 3), 1),
        (of_operator("cos", Outcome.FELL_BACK, 2), of_operator("cos", Outcome.FELL_BACK, 3), 1),
        (of_operator("cos", Outcome.FELL_BACK, 3), of_operator("cos", Outcome.FELL_BACK, 2), 0),
        (of_operator("cos", Outcome.FELL_BACK, 4), of_operator("cos", Outcome.FAIL), 1),
        (of_operator("cos", Outcome.FAIL), of_operator("cos", Outcome.FELL_BACK, 4), 0),
        (of_operator("cos"), of_operator("cos", Outcome.UNAVAILABLE, reason="no module"), 1),
        (of_operator("cos"), None, 1),
        (None, of_operator("cos"), 0),
        (MODEL, replace(MODEL, operators=calls(("b.yaml:12", 4, 2), ("b.yaml:9", 2, 0))), 1),
    ],
)
def test_lost_cells_fail_a_comparison(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    before: CaseResult | None,
    after: CaseResult | None,
    lost: int,
) -> None:
    names = [
        str(write_run(tmp_path / name, run_of(of_operator("add"), *filter(None, [result]))))
        for name, result in (("a", before), ("b", after))
    ]
    code = main(["diff", *names, "--fail-on", "lost-cells", "--json"])
    document = json.loads(capsys.readouterr().out)
    validator("diff").validate(document)
    assert (code, document["reached"]) == (
        (ExitCode.FAILED, {"lost-cells": lost}) if lost else (ExitCode.OK, {})
    )


def test_run_writes_the_table_and_refuses_another_ending(go: Go) -> None:
    (Path("specs") / "one.yaml").write_text(
        GOOD.replace("close: {to: eager}", "counter: {inductor.fxgraph_cache_miss: 1}")
    )
    assert go(execution, "--support", "s.json") == ExitCode.OK
    assert json.loads(Path("s.json").read_text())["cells"] == []
    assert go(execution, "--support", "s.txt") == ExitCode.USAGE


def test_a_result_has_what_its_calls_measured() -> None:
    measured = {
        "eager": ["aten.mm", "aten.cos"],
        "residue": ["aten.mm"],
        "tensors": 1,
        "done": True,
        "eager_calls": 0,
    }
    dynamo = {"graphs": 1, "calls": 1, "calls_others": 0, "frames": 1, "broken": []}
    by, claim = (
        backend(service={"allow": ["aten.mm"]}),
        expected("counter", {"inductor.fxgraph_cache_miss": 1}),
    )
    for residue, replaces, by_aten in (
        (["aten.mm"], {"aten.mm": [0]}, {"aten.mm": 1}),
        (["aten.cos", "aten.cos"], {"aten.cos": [1]}, {"aten.cos": 1}),
        # one that eager does not run may have run in place of all
        (
            ["aten.cos", "aten.sdpa"],
            {"aten.cos": [1], "aten.sdpa": [0, 1]},
            {"aten.cos": 1, "aten.sdpa": 1},
        ),
        ([], {}, {}),
    ):
        facts = seen(
            measured={"proof": {**measured, "residue": residue, "replaces": replaces}},
            dynamo=dynamo,
        )
        result = verdict_of(case(step(claim)), observation(facts), by=by)
        assert (result.outcome is Outcome.PASS) == ("aten.cos" not in by_aten)
        assert (result.eager_operators, dict(result.by_aten)) == (2, by_aten)
        assert result.operators == ()  # facts before overloads and places were known


def test_calls_have_their_place_or_that_of_the_step() -> None:
    measured = {
        "eager": ["aten.mm", "aten.cos", "aten.cos", "aten.cos"],
        "residue": ["aten.cos"],
        "replaces": {"aten.cos": [2]},
        "overloads": ["default"] * 4,
        "places": [["", 1], ["sample 0: 0: float32[]", 1], ["sample 1: 0: float32[2]", 2]],
        "tensors": 1,
        "done": True,
        "eager_calls": 0,
    }
    dynamo = {"graphs": 1, "calls": 1, "calls_others": 0, "frames": 1, "broken": []}
    claim = expected("counter", {"inductor.fxgraph_cache_miss": 1})
    facts = seen(measured={"proof": measured}, dynamo=dynamo)
    result = verdict_of(case(step(claim)), observation(facts), by=backend(service={}))
    (of_step, *others) = result.operators
    assert (of_step.operator, of_step.calls, of_step.by_aten) == ("aten.mm.default", 1, 0)
    assert re.fullmatch(r"[\w-]+\.yaml:\d+", of_step.place)
    assert others == [
        *calls(("sample 0", 1, 0)),
        # its arguments are said where ATen ran an operator of it
        *calls(("sample 1: 0: float32[2]", 2, 1)),
    ]
    (proof,) = (verdict for verdict in result.verdicts if verdict.kind == "proof")
    assert proof.detail == "aten.cos.default, 1 of 2 by ATen: sample 1: 0: float32[2]"


OF_ATEN = "buf1 = torch.ops.aten.sort.stable(buf0)\nasync_compile.wait(globals())\n"


@pytest.mark.parametrize(
    ("kernels", "code", "called"),
    [
        (0, OF_ATEN, "aten.sort"),
        (0, f"extern_kernels.mm(a, b, out=buf0)\n{OF_ATEN}", "aten.mm, aten.sort"),
        (
            0,
            'source = (\nr"""\naoti_torch_cuda_mm_out(buf0, a, b);\n'
            'aoti_torch_call_dispatcher("aten::relu", "", stack);\n"""\n)',
            "aten.mm_out, aten.relu",
        ),
        (
            0,
            'source = r"""\naoti_torch_cpu_mm(a, b);\nop = findSchemaOrThrow("my::mul", "");\n"""',
            "",
        ),
        (1, OF_ATEN, ""),
        (0, f"buf0 = torch.ops.mylib.mul.default(a)\n{OF_ATEN}", "mylib.mul, aten.sort"),
        (0, f"mul = async_compile.triton('mul', '''...''')\n{OF_ATEN}", ""),
        (0, "# torch.ops.aten.sort(buf0)\nreturn (buf0, )\n", ""),
    ],
)
def test_a_case_whose_whole_answer_aten_computed_has_a_note(
    kernels: int, code: str, called: str
) -> None:
    facts = seen(metrics={"generated_kernel_count": kernels}, code=1)
    text = f"from ctypes import c_void_p\nasync_compile = AsyncCompile()\n{code}"
    result = verdict_of(
        case(step(expected("counter", {"inductor.fxgraph_cache_miss": 1}))),
        observation(facts),
        code={(0, 0): text},
    )
    assert result.outcome is Outcome.PASS
    assert [note.partition("called ")[2] for note in result.shown_notes] == [called] * bool(called)
    assert bool(result.by_aten) == (called.startswith("aten."))


def test_a_note_of_many_cases_is_one_entry_of_the_terminal() -> None:
    notes = [
        of_operator(f"op{number}", notes=(f"it called aten.op{number}",)) for number in range(3)
    ]
    lines = shown(*notes, of_operator("other", notes=("another note",)))
    assert [line.strip() for line in lines if "note" in line][1:] == [
        "3 cases have this note; the others:",
        "another note",
    ]
    assert sum("op=*" in line and line.endswith(": op1, op2") for line in lines) == 1

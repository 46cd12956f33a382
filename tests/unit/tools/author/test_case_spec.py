"""``explain``: a case as the spec of it alone.

Loaded again, the text is the same case. Nothing is executed.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ROOT, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.language.load import Suite, load, load_specs
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.language.read.yaml_source import parse
from torch_conformance.model.case import Case, WrittenFunction
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.plan.selection import is_of_operator
from torch_conformance.plan.worker_plan import seed_of
from torch_conformance.tools.author.commands.explain import (
    Decision,
    Origins,
    decision_of,
    document_of,
    step_of,
    text_of,
    without_idle_spies,
)
from torch_conformance.vocabulary.steps import python_of

SCHEMA = ROOT / "schemas" / "spec.schema.json"
SPECS = ROOT / "specs"


def written(case: Case, suite: Suite) -> str:
    return text_of(
        document_of(case, suite.backends),
        Origins(case, suite.documents, decision_of(case, suite.backends)),
    )


def facts(case: Case) -> dict[str, Any]:
    """Return what must be the same of a case and of its text, for people and for the worker."""
    body = case.body
    sections = {name: dict(options) for name, options in body.settings.by_section.items()}
    sections["torch"].pop("seed", None)
    return {
        "said": (
            case.summary,
            case.covers,
            case.tags,
            case.backend,
            case.device,
            case.target,
            case.on_request,
            case.exclusive,
        ),
        "requires": sorted({str(one) for one in case.requires}),
        "settings": json.dumps(sections, default=str, sort_keys=True),
        "prelude": [line for block in body.preludes for line in block.text.split("\n") if line],
        "functions": [
            (one.block.text, one.entry) if isinstance(one, WrittenFunction) else repr(one)
            for one in body.functions.values()
        ],
        "values": repr(
            (
                body.let,
                body.handlers,
                list(body.inputs),
                list(body.context),
                body.services,
                body.timeout,
            )
        ),
        "spies": without_idle_spies(
            {"spies": dict(body.spies), "steps": judged(case, (2, 13, 0))}
        ).get("spies", {}),
        "isolation": body.isolation,
        "control": None if case.control is None else (repr(case.control.patch), case.control.fails),
        "weak": [
            expected.weak for step in case.steps for expected in step.expectations if expected.weak
        ],
        "python": [
            (python_of(step) or {}).get("text") for step in case.steps if step.runs(here(case))
        ],
    }


def here(case: Case, torch: tuple[int, ...] = (2, 13, 0)) -> Surroundings:
    vendor, arch = {"cuda": ("nvidia", "sm_90"), "rocm": ("amd", "gfx942")}.get(
        case.backend.partition("-")[0], (None, None)
    )
    return Surroundings(
        backends=frozenset([case.backend, case.backend.partition("-")[0]]),
        device=case.device,
        torch=torch,
        vendor=vendor,
        arch=arch,
    )


def judged(case: Case, torch: tuple[int, ...]) -> Sequence[Mapping[str, Any]]:
    """Return the steps and expectations that apply with a torch, without conditions on the
    machine.
    """
    decision = Decision(here(case, torch))
    return [
        step_of(step, decision) for step in case.steps if decision.left_of(step.when) is not None
    ]


def check(cases: Sequence[Case], suite: Suite, folder: Path) -> None:
    """Write each case as a spec, load these, and compare."""
    originals: dict[str, Case] = {}
    paths = []
    order = list(json.loads(SCHEMA.read_text("utf-8"))["properties"])
    for case in cases:
        path = folder / (case.area or ".") / f"{case.name}--{len(originals)}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(written(case, suite), encoding="utf-8")
        paths.append(SpecPath(path=path, root=folder))
        originals[path.stem] = case
    again = load_specs(paths, (), None)
    for document in again.documents:
        keys = [
            key for key in document.data if key != "backends" or "targets" not in document.data
        ]  # added where it is left out
        assert keys == sorted(keys, key=order.index), document.file
    assert {one.name for one in again.cases} == originals.keys()
    for one in again.cases:
        case = originals[one.name]
        if is_of_operator(case):  # its text has every operator of the dtype
            continue
        assert facts(one) == facts(case), case.id
        assert case.target or seed_of(one) == seed_of(case), case.id
        for torch in () if case.target else ((2, 11, 0), (2, 13, 0)):
            assert judged(one, torch) == judged(case, torch), case.id


def test_the_text_of_every_spec_is_the_same_case(tmp_path: Path) -> None:
    suite = load([])
    check(list({(case.spec, case.backend): case for case in suite.cases}.values()), suite, tmp_path)


GOOD = """\
summary: A sum of {{ dtype }} equals eager
tags: [sums]
backends: [cpu, cuda]
matrix: {dtype: [float16, float32], size: [{id: small, value: {rows: 2}}, {id: large, value: {rows: 9}}], used: [1]}
config: {max_autotune: true, epilogue_fusion: false}
function: |
  def fn(x):
      return x + params.used
inputs:
  - {randn: ["{{ size.rows }}", 4], dtype: "{{ dtype }}"}
expect:
  - close: {to: eager}
  - counter: {stats.unique_graphs: [{when: {device: cuda}, value: 2}, {when: {torch: ">=2.12"}, value: 1}, {value: 3}]}
  - deterministic: {}
  - runs: {when: {device: cuda}}
"""  # noqa: E501 - text that is read by its lines
DEFAULTS = (
    "config: {max_autotune: false, shape_padding: false}\ncontext: [no_grad]\ntags: "
    "[whole]\nprelude: |\n  K = 1\n"
)


@pytest.fixture
def own(here: Path) -> Path:
    return write_specs(here, {"_defaults": DEFAULTS, "sum": GOOD})


@pytest.mark.usefixtures("own")
def test_each_value_says_where_it_comes_from() -> None:
    suite = load([Path("specs")])
    (case,) = [
        one for one in suite.cases if one.id == "sum[backend=cpu,dtype=float16,size=large,used=1]"
    ]
    assert (
        written(case, suite)
        == f"""\
summary: A sum of float16 equals eager  # matrix: dtype=float16
tags: [whole, sums]  # whole from specs/_defaults.yaml
backends: [cpu]
matrix: {{used: [1]}}
requires:
  - cxx  # backend cpu
config:
  max_autotune: true
  shape_padding: false  # from specs/_defaults.yaml
  epilogue_fusion: false
torch:
  seed: {seed_of(case)}  # from the case's id
context: [no_grad]  # from specs/_defaults.yaml
prelude: |  # from specs/_defaults.yaml
  K = 1
function: |
  def fn(x):
      return x + params.used
inputs:
  - {{randn: [9, 4], dtype: float16}}  # matrix: dtype=float16, size=large
expect:
  - close: {{to: eager}}
  - counter: {{stats.unique_graphs: [{{when: {{torch: ">=2.12"}}, value: 1}}, {{value: 3}}]}}
  - deterministic: {{}}
"""
    )


@pytest.mark.usefixtures("own")
def test_what_explain_prints_is_a_stream_of_specs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "sum[backend=cpu*", "specs"]) == ExitCode.OK
    parts = capsys.readouterr().out.split("---\n")
    assert len(parts) == 4
    for part in parts:
        head = [text for text in part.splitlines() if text.startswith("#")]
        assert [text.split()[1] for text in head[1:]] == [
            "file",
            "backend",
            "proof",
            "runs",
            "process",
            "timeout",
            "digest",
        ]
        assert parse(part, path=Path("x.yaml")).data["backends"] == ["cpu"]


@pytest.mark.usefixtures("own")
def test_text_in_comments_cannot_end_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("specs/sum.yaml").write_text(GOOD.replace("id: small", 'id: "a\\nb: c"'))
    assert main(["explain", "sum[backend=cpu*", "specs"]) == ExitCode.OK
    for part in capsys.readouterr().out.split("---\n"):
        assert "b" not in parse(part, path=Path("x.yaml")).data

"""From specs to cases: ids, the order in which options are merged, and what is left to the machine
that runs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import used
from torch_conformance.language import load as loading
from torch_conformance.language.load import Suite
from torch_conformance.language.read.templates import as_text
from torch_conformance.machine.installed_torch import torch_at
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.plan.worker_plan import digest_of, seed_of

LoadSuite = Callable[..., Suite]

VENDOR = """\
vendor:
  summary: A backend of a vendor
  device: cuda
  joins: [rocm]
  config: {max_autotune: true}
  proof: {graphs: {min: 1}}
"""


def ids(suite: Suite) -> list[str]:
    return [case.id for case in suite.cases]


def only(suite: Suite) -> Case:
    (case,) = suite.cases
    return case


# -- ids -------------------------------------------------------------------------------------------


def test_an_id_is_area_name_backend_and_values(load_suite: LoadSuite, good: str) -> None:
    text = (
        good.replace("[cpu]", "[cpu, cuda]")
        + "matrix: {dtype: [float32], dynamic: [true, false]}\n"
        + used("dtype", "dynamic")
    )
    assert ids(load_suite({"code/cache/a-hit.yaml": text, "top.yaml": good})) == [
        "code/cache/a-hit[backend=cpu,dtype=float32,dynamic=true]",
        "code/cache/a-hit[backend=cpu,dtype=float32,dynamic=false]",
        "code/cache/a-hit[backend=cuda,dtype=float32,dynamic=true]",
        "code/cache/a-hit[backend=cuda,dtype=float32,dynamic=false]",
        "top[backend=cpu]",
    ]


def test_a_vendors_backend_adds_cases_and_changes_none(load_suite: LoadSuite, good: str) -> None:
    text = good.replace("[cpu]", "[cpu, rocm]") + "matrix: {n: [1, 2]}\n" + used("n")
    before = load_suite(text)
    after = load_suite(text, backends=VENDOR)
    assert set(ids(after)) - set(ids(before)) == {
        "spec[backend=vendor,n=1]",
        "spec[backend=vendor,n=2]",
    }
    assert set(ids(before)) < set(ids(after))
    digests = {case.id: digest_of(case) for case in after.cases}
    assert all(digests[case.id] == digest_of(case) for case in before.cases)


def test_two_files_of_one_id_are_told_once(load_suite: LoadSuite, good: str) -> None:
    text = good + "matrix: {n: [1, 2, 3]}\n" + used("n")
    with pytest.raises(InvalidSpecs) as caught:
        load_suite({"a/x.yaml": text, "a/x.yml": text})
    assert [f"{problem.position} {problem.code}" for problem in caught.value.diagnostics] == [
        "suite/a/x.yml:1:1 repeated-id"
    ]


# -- the order of options --------------------------------------------------------------------------


def test_defaults_then_spec_then_backend(load_suite: LoadSuite, good: str) -> None:
    files = {
        "_defaults.yaml": "config: {freezing: true, cpp_wrapper: true, "
        "fx_graph_cache: true}\ncontext: "
        "[no_grad]\ntags: [outer]\n",
        "in/_defaults.yaml": "config: {cpp_wrapper: false}\ntags: [inner, outer]\n",
        "in/spec.yaml": good.replace("[cpu]", "[rocm-ck]")
        + "config: {fx_graph_cache: false}\ntags: [own]\n",
    }
    case = only(load_suite(files))
    assert {name: option.value for name, option in case.options["config"].items()} | {
        "rocm.ck_dir": None
    } == {
        "freezing": True,
        "cpp_wrapper": False,
        "fx_graph_cache": False,
        "max_autotune": True,
        "max_autotune_gemm_backends": "CK",
        "rocm.ck_dir": None,
    }
    origins = {name: option.origin for name, option in case.options["config"].items()}
    assert origins["freezing"] == "defaults, suite/_defaults.yaml:1:10"
    assert origins["cpp_wrapper"] == "defaults, suite/in/_defaults.yaml:1:10"
    assert origins["fx_graph_cache"] == "spec, suite/in/spec.yaml:8:10"
    assert origins["max_autotune"].startswith("backend rocm-ck, ")
    assert (case.body.context, case.tags) == (("no_grad",), ("outer", "inner", "own"))


def test_the_state_of_torch_is_inherited_key_by_key(load_suite: LoadSuite, good: str) -> None:
    files = {
        "_defaults.yaml": "torch: {allow_tf32: false, default_dtype: float64}\n",
        "in/_defaults.yaml": "torch: {default_dtype: float32}\n",
        "in/spec.yaml": good + "torch: {deterministic: true}\n",
        "spec.yaml": good + "torch: {allow_tf32: true}\n",
    }
    inner, outer = sorted(load_suite(files).cases, key=lambda case: case.id)
    assert inner.body.settings.torch == {
        "allow_tf32": False,
        "default_dtype": "float32",
        "deterministic": True,
    }
    assert outer.body.settings.torch == {"allow_tf32": True, "default_dtype": "float64"}
    assert inner.options["torch"]["allow_tf32"].origin == "defaults, suite/_defaults.yaml:1:9"


def test_what_a_backend_sets_otherwise_must_be_meant(load_suite: LoadSuite, good: str) -> None:
    text = good.replace("[cpu]", "[rocm]\ntags: [gemm]")
    for config in ("{max_autotune: false}", "[{set: {max_autotune: false}}]"):
        with pytest.raises(InvalidSpecs) as caught:
            load_suite(text + f"config: {config}\n", backends=VENDOR)
        conflicts = [
            problem
            for problem in caught.value.diagnostics
            if dict(problem.arguments)["backend"] == "vendor"
        ]
        column = 10 if config.startswith("{") else 17
        assert [f"{problem.position} {problem.code}" for problem in conflicts] == [
            f"suite/spec.yaml:9:{column} conflicting-options"
        ]
        assert dict(conflicts[0].arguments)["place"] == "vendor.yaml:5:12"
    meant = load_suite(
        text + "config: [{set: {max_autotune: false}, override: true}]\n", backends=VENDOR
    )
    assert {
        case.backend: case.body.settings.config["max_autotune"] for case in meant.cases
    } == dict.fromkeys(("rocm", "rocm-ck", "rocm-cktile", "rocm-mixed", "vendor"), False)
    same = load_suite(text + "config: {max_autotune: true}\n", backends=VENDOR)
    assert len(same.cases) == 5


def test_conditions_choose_by_backend_and_by_what_it_joins(
    load_suite: LoadSuite, good: str
) -> None:
    config = (
        "config: [{freezing: false}, {when: {backend: rocm}, set: {freezing: true}}, {when: "
        "{device: cpu}, set: {cpp_wrapper: true}}]\n"
    )
    suite = load_suite(good.replace("[cpu]", "[cpu, rocm]\ntags: [gemm]") + config, backends=VENDOR)
    found = {
        case.backend: (
            case.body.settings.config["freezing"],
            "cpp_wrapper" in case.body.settings.config,
        )
        for case in suite.cases
    }
    assert found == {"cpu": (False, True)} | dict.fromkeys(
        ("rocm", "rocm-ck", "rocm-cktile", "rocm-mixed", "vendor"), (True, False)
    )


# -- templates -------------------------------------------------------------------------------------


def test_a_value_takes_the_type_of_its_expression(load_suite: LoadSuite, good: str) -> None:
    text = good.replace("[4, 4]}, {", '"{{ shape }}", dtype: "{{ dtype }}"}, {') + (
        "matrix: {shape: [{id: square, value: [4, 4]}], dtype: [float16], dynamic: [true], "
        "size: [3]}\n"
        'covers: ["a::b[{{ dtype }},{{ dynamic }},{{ size + 1 }}]"]\n'
        'compile: {dynamic: "{{ dynamic }}"}\nenv: {A: "{{ size }}", B: "x{{ size }}"}\n'
    )
    case = only(load_suite(text))
    assert case.id == "spec[backend=cpu,shape=square,dtype=float16,dynamic=true,size=3]"
    assert case.body.inputs[0] == {"rand": [4, 4], "dtype": "float16"}
    assert (case.body.settings.compile, case.body.settings.env) == (
        {"dynamic": True},
        {"A": 3, "B": "x3"},
    )
    assert case.covers == ("a::b[float16,true,4]",)
    assert case.params == {"shape": [4, 4], "dtype": "float16", "dynamic": True, "size": 3}


def test_text_from_the_matrix_stays_text_wherever_it_goes(load_suite: LoadSuite, good: str) -> None:
    text = good.replace("{rand: [4, 4]}]", '"{{ n }}"]') + (
        'matrix: {n: ["{{ backend }}", "{{ nope }}", "{{ facts.arch }}"]}\n'
        'config: [{max_autotune_gemm_backends: "{{ n }}"}, {set: {cuda.cutlass_dir: "a{{ n }}"}}]\n'
        'env: {A: "{{ n }}"}\n'
    )
    for case, written in zip(
        load_suite(text).cases, ("{{ backend }}", "{{ nope }}", "{{ facts.arch }}"), strict=True
    ):
        assert case.params == {"n": written}
        assert case.body.inputs[1] == case.body.settings.env["A"] == written
        assert case.body.settings.config == {
            "max_autotune_gemm_backends": written,
            "cuda.cutlass_dir": f"a{written}",
        }


def test_facts_are_never_resolved_here(load_suite: LoadSuite, good: str) -> None:
    text = (
        good.replace("[cpu]", "[rocm-ck]").replace("[4, 4]}, {", '["{{ facts.gpus * n }}", 4]}, {')
        + "matrix: {n: [2]}\n"
    )
    case = only(load_suite(text))
    assert as_text(case.body.inputs[0]) == {"rand": ["{{ facts.gpus * n }}", 4]}
    assert as_text(case.body.settings.config)["rocm.ck_dir"] == "{{ facts.ck_dir }}"
    assert case.body.inputs[0]["rand"][0].names["n"] == 2


def test_templates_are_not_applied_to_code_and_patterns(load_suite: LoadSuite, good: str) -> None:
    text = (
        good.replace("return x @ y", 'return {"{{ backend }}"}')
        + 'prelude: |\n  A = "{{ backend }}"\n'
    )
    case = only(
        load_suite(
            text.replace(
                "[{close: {to: eager}}]", '[{raises: {type: ValueError, match: "{{ backend }}"}}]'
            )
        )
    )
    assert "{{ backend }}" in case.body.functions["function"].block.text
    assert "{{ backend }}" in case.body.preludes[0].text
    assert case.steps[0].expectations[0].check.match == "{{ backend }}"


# -- seeds, digests, places ------------------------------------------------------------------------


def test_every_backend_sees_the_same_numbers_and_no_two_points_do(
    load_suite: LoadSuite, good: str
) -> None:
    cases = load_suite(
        {
            "a/x.yaml": good.replace("[cpu]", "[cpu, cuda]")
            + "matrix: {n: [1, '1.0']}\n"
            + used("n"),
            "b/x.yaml": good,
        }
    ).cases
    seeds: dict[str, set[int]] = {}
    for case in cases:
        seeds.setdefault(case.id.replace("cuda", "cpu"), set()).add(seed_of(case))
    assert [len(found) for found in seeds.values()] == [1, 1, 1]
    assert len(set.union(*seeds.values())) == 3


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (("x @ y", "x @ y + 0"), True),
        (("[4, 4]", "[4, 5]"), True),
        (("to: eager", "to: eager, atol: 1e-2, rtol: 1e-2"), True),
        (("summary: A", "summary: The"), False),
        (("summary:", "# a comment\nsummary:"), False),
        (("backends: [cpu]", "backends: [cpu]\ntags: [cache]"), False),
        (("backends: [cpu]", "backends: [cpu]\nconfig: {freezing: true}"), True),
        (("backends: [cpu]", "backends: [cpu]\nprelude: A = 1"), True),
    ],
)
def test_the_digest_is_that_of_what_is_run_and_judged(
    change: tuple[str, str], differs: bool, load_suite: LoadSuite, good: str
) -> None:
    before = digest_of(only(load_suite(good)))
    after = digest_of(only(load_suite(good.replace(*change))))
    assert (before != after) is differs


def test_places_lead_to_the_file(load_suite: LoadSuite, good: str) -> None:
    counters = "".join(f"          inductor.fxgraph_cache_{word}: 0\n" for word in ("hit", "miss"))
    text = (
        good[: good.index("expect:")]
        + f"steps:\n  - call: {{}}\n    expect:\n      - counter:\n{counters}"
    )
    step = only(load_suite(text)).steps[0]
    (expected,) = step.expectations
    assert str(step.position) == "suite/spec.yaml:8:5"
    assert str(expected.position) == "suite/spec.yaml:10:9"
    assert str(expected.place("inductor.fxgraph_cache_miss")) == "suite/spec.yaml:12:11"
    assert str(expected.place("nothing")) == str(expected.position)


# -- another torch ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "options", "missing"),
    [
        ("2.11.0", "", ("config rocm.origami is not in torch 2.11, only in 2.13, 2.14",)),
        ("2.13.1+cpu", "class rocm:\n    origami: bool = False\n", ()),
    ],
)
def test_an_option_of_another_torch_makes_a_case_unavailable_where_it_is_set(
    load_suite: LoadSuite,
    good: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    options: str,
    missing: tuple[str, ...],
) -> None:
    for name in (
        "version.py",
        "_inductor/config.py",
        "_dynamo/config.py",
        "_functorch/config.py",
        "_inductor/metrics.py",
    ):
        (tmp_path / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "torch" / name).write_text(f"__version__ = '{version}'\n{options}")
    monkeypatch.setattr(loading, "installed_torch", lambda: torch_at(tmp_path / "torch"))
    assert only(load_suite(good + "config: {rocm.origami: true}\n")).missing_names == missing
    case = only(
        load_suite(good + 'config: [{when: {torch: ">=2.13"}, set: {rocm.origami: true}}]\n')
    )
    assert case.missing_names == ()
    assert ("rocm.origami" in case.body.settings.config) is (not missing)


# -- environment -----------------------------------------------------------------------------------


def test_variables_have_conditions(load_suite: LoadSuite, good: str) -> None:
    text = good.replace("[cpu]", "[cpu, rocm]") + "env: [{when: {backend: rocm}, set: {A: '1'}}]\n"
    backends = VENDOR + "  env: [{when: {torch: '>=2.0'}, set: {C: x}}, {set: {D: x}}]\n"
    suite = load_suite(text, backends=backends)
    assert {case.backend: dict(case.body.settings.env) for case in suite.cases} == {
        "cpu": {},
        "rocm": {"A": "1"},
        "vendor": {"A": "1", "C": "x", "D": "x"},
    }


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ("[]", "empty"),
        ("[{A: '1'}]", "unknown-key"),
        ("[{set: {}}]", "empty"),
        ("[{set: {a: '1'}}]", "bad-name"),
        ("[{set: {A: '1'}, override: true}]", "unknown-key"),
        ('[{set: {A: "x\\0y"}}]', "nul-character"),
        ("[{when: {backend: cpuu}, set: {A: '1'}}]", "unknown-backend"),
        ("[{when: {torch: '2'}, set: {A: '1'}}]", "bad-range"),
        ("[{set: {TORCHINDUCTOR_REDIS_URL: x}}]", "address-with-services"),
    ],
)
def test_what_is_wrong_in_conditional_variables(
    codes_of: Callable[..., list[str]], good: str, env: str, code: str
) -> None:
    found = codes_of(f"{good}services: [redis]\nenv: {env}\n")
    assert [line.partition(" ")[2] for line in found][-1:] == [code]

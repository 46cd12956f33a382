"""What a spec means: what is allowed beside what is not. The exact lines of mistakes stand in tests/specs/invalid."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.language.load import load
from runner.language.read import python_source

ROOT = Path(__file__).resolve().parents[2]
VALID = sorted((ROOT / "tests" / "specs" / "valid").glob("*.yaml"))

VENDOR = """\
vendor:
  summary: A backend of a vendor
  device: cuda
  joins: [rocm]
  proof: {graphs: {min: 1}}
"""

Problems = Callable[..., list[str]]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    assert load([path]).cases


def with_function(good: str, function: str, inputs: str = "[{rand: [4, 4]}, {rand: [4, 4]}]") -> str:
    head, _, rest = good.partition("function: |")
    return head + function + f"\ninputs: {inputs}\n" + rest[rest.index("expect:") :]


# -- functions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        ("def fn(): pass", [0]),
        ("def fn(a): pass", [1]),
        ("def fn(a, /, b): pass", [2]),
        ("def fn(a, b=1): pass", [1, 2]),
        ("def fn(a=1, b=1): pass", [0, 1, 2]),
        ("def fn(*a): pass", [0, 1, 2, 3]),
        ("def fn(a, *b): pass", [1, 2, 3]),
        ("def fn(a, *, b=1): pass", [1]),
        ("def fn(a, **b): pass", [1]),
    ],
)
def test_a_function_takes_so_many_inputs(function: str, takes: list[int], good: str, problems_of: Problems) -> None:
    for count in range(4):
        found = problems_of(with_function(good, f'function: "{function}"', "[" + "1, " * count + "]"))
        assert (found == []) is (count in takes), (count, found)


# -- names of libraries ---------------------------------------------------------------------------------------------


def test_looking_a_name_up_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "trap" / "inner.py").write_text("raise SystemExit('imported')\ndef there(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert python_source.find_name("trap.inner.there", set()) is None
    assert python_source.find_name("trap.inner:there", set()) is None
    assert python_source.find_name("trap.inner.ther", set()) == ("no name 'ther' in trap.inner", "did you mean 'there'?")


def test_a_package_that_is_required_is_not_looked_for(good: str, problems_of: Problems) -> None:
    text = with_function(good, 'function: {ref: "no_such_package.module:fn"}')
    assert len(problems_of(text)) == 1
    assert problems_of(text + "requires: [{module: no_such_package}]\n") == []


def test_names_of_another_torch_are_left_to_the_worker(good: str, problems_of: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_function(good, "function: {api: torch._inductor.codecache.OfAnotherTorch}")
    raises = good.replace("[{close: {to: eager}}]", "[{raises: {type: torch._dynamo.exc.OfAnotherTorch}}]")
    assert [len(problems_of(one)) for one in (text, raises)] == [1, 1]
    for one in (text, raises):
        assert problems_of(one + 'requires: [{torch: ">=2.13"}]\n') == []
    monkeypatch.setattr(python_source, "is_installed", lambda name: False)
    assert [problems_of(one) for one in (text, raises)] == [[], []]


# -- conditions -----------------------------------------------------------------------------------------------------


def test_a_condition_may_name_a_backend_that_joins_one_of_the_specs(good: str, problems_of: Problems) -> None:
    text = good.replace("[cpu]", "[rocm]") + "config: [{when: {backend: vendor}, set: {freezing: true}}]\n"
    assert problems_of(text, backends=VENDOR) == []
    (line,) = problems_of(text)
    assert line.split(": ", 1)[1].startswith("unknown backend 'vendor' (allowed: ")


# -- named values ---------------------------------------------------------------------------------------------------


def test_names_are_there_from_their_step_on(good: str, problems_of: Problems) -> None:
    steps = """\
steps:
  - api: {call: json.loads, args: ["[1]"], as: pool}
    expect: [{equals: {pool: [1], output: {ref: pool}}}]
  - call: {as: first}
  - call: {inputs: [{ref: first}, {ref: pool.size}]}
    expect:
      - close: {of: output, to: first}
      - strides: {of: first, contiguous: true}
  - backward: {of: first, as: gradients}
    expect: [{differs: {gradients: {ref: first}}}]
"""
    assert problems_of(good[: good.index("expect:")] + steps) == []


def test_an_input_of_the_spec_is_made_before_any_step(good: str, problems_of: Problems) -> None:
    text = good.replace("[{rand: [4, 4]}, ", "[{ref: made}, ")
    steps = "steps:\n  - api: {call: json.loads, args: ['1'], as: made}\n  - call: {}\n    expect: [{runs: {}}]\n"
    (line,) = problems_of(text[: text.index("expect:")] + steps)
    assert line.startswith("spec.yaml:6:16: the name 'made' is not available yet (it is the result of the step at line 8")
    assert problems_of(good[: good.index("expect:")] + steps.replace("call: {}", "call: {inputs: [{ref: made}, 2]}")) == []


# -- counters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count",
    ["0", "1", "{min: 1}", "{max: 0}", "{min: 1, max: 3}", "{value: 2}", "[{when: {torch: '>=2.13'}, value: 2}, {value: {min: 1}}]"],
)
def test_counts(count: str, good: str, problems_of: Problems) -> None:
    expect = f"expect: [{{counter: {{inductor.fxgraph_cache_hit: {count}}}}}, {{metric: {{generated_kernel_count: {count}}}}}]"
    assert problems_of(good.replace("expect: [{close: {to: eager}}]", expect)) == []


# -- all in one go --------------------------------------------------------------------------------------------------


def test_the_mistake_of_one_file_hides_no_other(good: str, problems_of: Problems) -> None:
    conflict = good.replace("[cpu]", "[rocm-ck]") + "config: {max_autotune: false}\n"
    files = {
        "a.yaml": "a: [",
        "b.yaml": conflict,
        "c.yaml": good + "config: {freezin: true}\n",
        "d/_defaults.yaml": "x: 1\n",
        "d/e.yaml": good,
    }
    assert [line.split(":")[0] for line in problems_of(files, backends="vendor: {}\n")] == [
        *("a.yaml", "b.yaml", "c.yaml", "d/_defaults.yaml", "vendor.yaml"),
    ]
    assert [line.split(":")[0] for line in problems_of(files)] == ["a.yaml", "b.yaml", "c.yaml", "d/_defaults.yaml"]

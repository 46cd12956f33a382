"""The points of a spec: their order, their ids, and what is excluded."""

from collections.abc import Callable

import pytest

from tests.conftest import GOOD
from torch_conformance.language.load import Suite
from torch_conformance.model.conditions import Surroundings, choose

VENDOR = (
    "vendor: {summary: A backend of a vendor, device: cuda, joins: [rocm], proof: {graphs: "
    "{min: 1}}}\n"
)

LoadSuite = Callable[..., Suite]
Codes = Callable[..., list[str]]


def spec(text: str, *names: str, backends: str = "cpu") -> str:
    """Return a spec with a matrix, whose keys its Python uses."""
    used = "".join(f"  {name} = params.{name}\n" for name in names)
    return GOOD.replace("[cpu]", f"[{backends}]") + text + (f"prelude: |\n{used}" if used else "")


def brackets(suite: Suite) -> list[str]:
    return [case.id.removeprefix("spec[backend=").removesuffix("]") for case in suite.cases]


def test_backend_first_then_the_keys_in_the_order_of_the_file(load_suite: LoadSuite) -> None:
    text = spec("matrix: {z: [1, 2], a: [x]}\n", "z", "a", backends="cuda, cpu")
    assert brackets(load_suite(text)) == [
        "cuda,z=1,a=x",
        "cuda,z=2,a=x",
        "cpu,z=1,a=x",
        "cpu,z=2,a=x",
    ]


LABELS = [
    *(
        ("1e-3", "1e-3"),
        ("0.001", "0.001"),
        ("012", "012"),
        ("0x0A", "0x0A"),
        ("+1", "+1"),
        ("1.0", "1.0"),
        ("true", "true"),
    ),
    *(
        ("True", "True"),
        ("null", "null"),
        ("~", "%7E"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("float32", "float32"),
    ),
    *(
        ("a_b.c+d-e", "a_b.c+d-e"),
        ("a b", "a%20b"),
        ("'a,b'", "a%2Cb"),
        ("'[x]'", "%5Bx%5D"),
        ("a=b", "a%3Db"),
        ("a/b", "a%2Fb"),
    ),
    *(
        ("a%b", "a%25b"),
        ("ä", "%C3%A4"),
        ("'😀'", "%F0%9F%98%80"),
        ('"a\\nb"', "a%0Ab"),
        ("a*b?", "a%2Ab%3F"),
        ("''", ""),
    ),
    *(
        ("'null text'", "null%20text"),
        ("'1'", "1"),
        ("{id: one, value: [1]}", "one"),
        ("{id: 7, value: {a: 1}}", "7"),
    ),
    *(("{id: 'c d', value: null}", "c%20d"),),
]


def test_values_stand_in_an_id_as_they_stand_in_the_file(load_suite: LoadSuite) -> None:
    for written, label in LABELS:
        assert brackets(load_suite(spec(f"matrix:\n  v: [{written}]\n", "v"))) == [
            f"cpu,v={label}"
        ], written


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a: 1", ["a=2,b=x", "a=2,b=y"]),
        ("a: 1, b: x", ["a=1,b=y", "a=2,b=x", "a=2,b=y"]),
        ("a: [1, 2], b: x", ["a=1,b=y", "a=2,b=y"]),
        ("backend: cpu, b: x", ["a=1,b=y", "a=2,b=y"]),
        ("backend: [cpu], b: [x, y], a: 2", ["a=1,b=x", "a=1,b=y"]),
    ],
)
def test_all_keys_must_match_and_a_list_means_any(
    text: str, left: list[str], load_suite: LoadSuite
) -> None:
    suite = load_suite(
        spec(
            f"matrix: {{a: [1, 2], b: [x, y]}}\nexclude: [{{{text}, reason: it fails}}]\n", "a", "b"
        )
    )
    assert brackets(suite) == [f"cpu,{point}" for point in left]


@pytest.mark.parametrize(
    ("name", "gone"), [("rocm", ["rocm,a=1", "vendor,a=1"]), ("vendor", ["vendor,a=1"])]
)
def test_excluding_a_backend_also_excludes_those_that_join_it(
    name: str, gone: list[str], load_suite: LoadSuite
) -> None:
    text = spec(
        f"matrix: {{a: [1, 2]}}\nexclude: [{{backend: {name}, a: 1, reason: it fails}}]\n",
        "a",
        backends="cuda, rocm",
    )
    every = [f"{backend},a={value}" for backend in ("cuda", "rocm", "vendor") for value in (1, 2)]
    assert brackets(load_suite(text, backends=VENDOR)) == [
        point for point in every if point not in gone
    ]


@pytest.mark.parametrize(
    ("values", "wanted", "left"),
    [
        ("[1, 1.0, '1x', true]", "1", ["1.0", "1x", "true"]),
        ("[1, 1.0, '1x', true]", "1.0", ["1", "1x", "true"]),
        ("[1, true]", "true", ["1"]),
        ("[null, 0, false]", "null", ["0", "false"]),
        ("[.nan, 1.5]", ".nan", ["1.5"]),
        ("[{id: square, value: [4, 4]}, {id: long, value: [1, 16]}]", "square", ["long"]),
        ("[{id: square, value: [4, 4]}, {id: long, value: [1, 16]}]", "[[4, 4]]", ["long"]),
        ("[{id: 1, value: [4, 4]}, 2]", "1", ["2"]),
        ("[{id: half, value: float16}, float32]", "half", ["float32"]),
        ("[{id: half, value: float16}, float32]", "float16", ["float32"]),
    ],
)
def test_a_value_is_excluded_by_itself_or_by_the_id_it_was_given(
    values: str, wanted: str, left: list[str], load_suite: LoadSuite
) -> None:
    suite = load_suite(
        spec(f"matrix: {{v: {values}}}\nexclude: [{{v: {wanted}, reason: it fails}}]\n", "v")
    )
    assert brackets(suite) == [f"cpu,v={value}" for value in left]


@pytest.mark.parametrize(
    ("exclusion", "code"),
    [
        *(
            ("v: 3", "15 selects-nothing"),
            ("v: '1'", "15 selects-nothing"),
            ("v: 1.0", "15 selects-nothing"),
        ),
        *(
            ("v: true", "15 selects-nothing"),
            ("v: [1, 3]", "19 selects-nothing"),
            ("v: []", "15 selects-an-empty-list"),
        ),
        *(
            ("backend: cuda", "21 selects-nothing"),
            ("w: 1", "12 unknown-matrix-key"),
            ("device: cpu", "12 unknown-matrix-key"),
        ),
    ],
)
def test_what_excludes_nothing(exclusion: str, code: str, codes_of: Codes) -> None:
    assert codes_of(
        spec(f"matrix: {{v: [1, 2]}}\nexclude: [{{{exclusion}, reason: it fails}}]\n", "v")
    ) == [f"9:{code}"]


IDS = """\
matrix:
  n: [{id: small, value: [4]}, {id: large, value: {shape: [400], kind: round}}]
  dtype: [{id: half, value: float16}, {id: single, value: float32}, {id: 8, value: bfloat16}]
"""


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("0 if n == 'small' else 1", ["n"]),
        ("0 if 'small' != n else 1", ["n"]),
        ("1 if dtype == 'float16' and (1 if not ('large' == n) else 2) == 1 else 2", ["n"]),
        ("1 if ('half' if n else dtype) == dtype else 2", ["dtype"]),
        ("1 if 'half' in dtype else 2", ["dtype"]),
        ("1 if 'small' in n else 2", ["n"]),
        ("1 if dtype == 8 else 2", ["dtype"]),
        ("1 if n.kind == 'large' else 2", ["n"]),
        ("1 if dtype == 'half' or n == 'small' else 2", ["dtype", "n"]),
        ("1 if dtype == 'float16' or n.kind == 'round' or 'float' in dtype else 2", []),
        ("1 if ('small' if n else 'large') == backend else 2", []),
    ],
)
def test_an_id_in_a_template_is_no_value(
    expression: str, names: list[str], codes_of: Codes
) -> None:
    text = spec(IDS, "n", "dtype").replace(
        "expect: [", f'expect: [{{counter: {{stats.unique_graphs: "{{{{ {expression} }}}}"}}}}, '
    )
    assert expression in text
    found = [code for code in codes_of(text) if code.endswith("id-in-template")]
    assert len(found) == len(names)


CONDITIONED = """\
summary: Conditions on the matrix
backends: [cpu]
function: |
  def fn(x):
      return x
inputs: [{randn: "{{ n }}"}]
config: [{when: {matrix: {n: large}}, set: {max_autotune: true}}]
steps:
  - call: {}
    when: {matrix: {n: [small, large], dtype: float16}}
    expect:
      - close: {to: eager}
      - counter: {stats.unique_graphs: [{when: {matrix: {n: small}}, value: 1}, {value: 2}]}
      - runs: {when: {matrix: {n: small}}}
matrix:
  n: [{id: small, value: [4]}, {id: large, value: [9]}, {id: none, value: [0]}]
  dtype: [float16, float32]
"""


def test_a_condition_on_the_matrix_is_decided_at_each_point(load_suite: LoadSuite) -> None:
    seen = {}
    for case in load_suite(CONDITIONED).cases:
        (step,) = case.steps
        here = Surroundings(backends=frozenset(["cpu"]), device="cpu")
        _, counter, runs = (expected.check for expected in step.expectations)
        seen[tuple(case.params.values())[1], case.params["n"][0]] = (
            step.runs(here),
            choose(counter.counts["stats.unique_graphs"], here)[1],
            runs.applies(here),
            "max_autotune" in case.options["config"],
        )
    assert seen == {
        (dtype, n): (dtype == "float16" and n != 0, 1 if n == 4 else 2, n == 4, n == 9)
        for dtype in ("float16", "float32")
        for n in (4, 9, 0)
    }


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("{n: smal}", "14:35 selects-nothing"),
        ("{n: [small, 4]}", "14:43 selects-nothing"),
        ("{n: []}", "14:35 selects-an-empty-list"),
        ("{m: 1}", "14:32 unknown-matrix-key"),
        ("{backend: cpu}", "14:32 unknown-matrix-key"),
    ],
)
def test_a_condition_on_what_the_matrix_lacks(condition: str, code: str, codes_of: Codes) -> None:
    last = "runs: {when: {matrix: {n: small}}}"
    assert codes_of(CONDITIONED.replace(last, last.replace("{n: small}", condition))) == [code]


def test_a_condition_on_a_matrix_without_one(codes_of: Codes) -> None:
    text = GOOD + "config: [{when: {matrix: {n: 1}}, set: {max_autotune: true}}]\n"
    assert [code.split()[1] for code in codes_of(text)] == ["condition-without-matrix"]


def test_values_that_would_have_one_id(codes_of: Codes) -> None:
    text = spec(
        "matrix: {a: [1, '1', 1.0, {id: '1.0', value: 3}], b: ['', '', ~, null]}\n", "a", "b"
    )
    # '~' and 'null' are two ids of one value
    assert codes_of(text) == [
        *(f"8:{column} repeated-value" for column in (17, 27, 59)),
        "8:66 equal-values",
    ]


@pytest.mark.parametrize(
    ("values", "backends", "good"),
    [(100, "cpu", True), (101, "cpu", False), (71, "cpu, cuda", False)],
)
def test_the_largest_matrix(values: int, backends: str, good: bool, codes_of: Codes) -> None:
    row = "[" + ", ".join(map(str, range(values))) + "]"
    assert codes_of(spec(f"matrix: {{a: {row}, b: {row}}}\n", "a", "b", backends=backends)) == (
        [] if good else ["8:1 too-many-cases"]
    )

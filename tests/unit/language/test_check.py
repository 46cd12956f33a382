"""What a spec means: what is allowed beside what is not.

Each mistake has its code; files with mistakes stand in tests/specs/invalid.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import GOOD
from tests.fakes import ROOT
from torch_conformance.language.load import load

VALID = sorted((ROOT / "tests" / "specs" / "valid").glob("*.yaml"))

VENDOR = (
    "vendor: {summary: A backend of a vendor, device: cuda, joins: [rocm], proof: {graphs: "
    "{min: 1}}}\n"
)

Codes = Callable[..., list[str]]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    assert load([path]).cases


def with_function(function: str, inputs: str = "[{rand: [4, 4]}, {rand: [4, 4]}]") -> str:
    head, _, rest = GOOD.partition("function: |")
    return head + function + f"\ninputs: {inputs}\n" + rest[rest.index("expect:") :]


def with_prelude(text: str) -> str:
    """Return a spec whose prelude is a text."""
    return GOOD + "prelude: |\n" + "".join(f"  {line}\n" for line in text.splitlines())


# -- what is allowed -------------------------------------------------------------------------------

STEPS = """\
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
COUNTS = [
    "0",
    "1",
    "{min: 1}",
    "{max: 0}",
    "{min: 1, max: 3}",
    "{value: 2}",
    "[{when: {torch: '>=2.13'}, value: 2}, {value: {min: 1}}]",
]


@pytest.mark.parametrize(
    "more",
    [
        "config: {fx_graph_remote_cache: null, max_autotune: false, memory_pool: outputs, "
        "cpp.threads: -1}\n",
        "config: {post_grad_custom_post_pass: {ref: f}}\nprelude: |\n  def f(graph): pass\n",
        "config: {max_autotune: {ref: f}}\nprelude: |\n  f = True\n",
        "dynamo_config: {optimize_ddp: python_reducer}\n",
        "compile: {mode: max-autotune-no-cudagraphs}\n",
        "compile: {mode: null}\n",
        "compile: {options: {guard_filter_fn: {ref: f}, max_autotune: true}}\nprelude: |\n  "
        "def f(guards): return [True for _ in guards]\n",
        "compile: {options: {guard_filter_fn: {ref: torch.compiler.keep_tensor_guards_unsafe}}}\n",
        "matrix: {repeat: [1, 2]}\n",
        'matrix: {n: [1, 2]}\nconfig: {realize_reads_threshold: "{{ n }}"}\n',
        "matrix: {n: [1, 2]}\nprelude: |\n  def f(): return params.n\n",
        'matrix: {n: [1, 2]}\nprelude: |\n  def f(): return getattr(params, "n")\n',
        "matrix: {n: [1, 2]}\nlet: {used: {call: builtins.str, args: [{ref: params.n}]}}\n",
        "matrix: {n: [1, 2]}\nlet: {used: {call: builtins.vars, args: [{ref: params}]}}\n",
        "matrix: {n: [1, 2]}\nprelude: |\n  every = dict(vars(params))\n",
        "matrix: {n: [1, 2]}\nprelude: |\n  from json import *\n  def f(): return params.n\n",
    ],
)
def test_what_may_be_added_to_a_spec(more: str, codes_of: Codes) -> None:
    assert codes_of(GOOD + more) == []


def test_names_and_counts_that_may_be_expected(codes_of: Codes) -> None:
    specs = {"steps.yaml": GOOD[: GOOD.index("expect:")] + STEPS}
    for number, count in enumerate(COUNTS):
        expect = (
            f"expect: [{{counter: {{inductor.fxgraph_cache_hit: {count}}}}}, {{metric: "
            f"{{generated_kernel_count: {count}}}}}]"
        )
        specs[f"count-{number}.yaml"] = GOOD.replace("expect: [{close: {to: eager}}]", expect)
    assert codes_of(specs) == []


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        *(
            ("def fn(): pass", [0]),
            ("def fn(a): pass", [1]),
            ("def fn(a, /, b): pass", [2]),
            ("def fn(a, b=1): pass", [1, 2]),
        ),
        *(
            ("def fn(a=1, b=1): pass", [0, 1, 2]),
            ("def fn(*a): pass", [0, 1, 2, 3]),
            ("def fn(a, *b): pass", [1, 2, 3]),
        ),
        *(("def fn(a, *, b=1): pass", [1]), ("def fn(a, **b): pass", [1])),
    ],
)
def test_a_function_takes_so_many_inputs(function: str, takes: list[int], codes_of: Codes) -> None:
    texts = {
        f"{count}.yaml": with_function(f'function: "{function}"', "[" + "1, " * count + "]")
        for count in range(4)
    }
    assert codes_of(texts) == [
        f"{count}.yaml:4:9 arity" for count in range(4) if count not in takes
    ]


def test_a_condition_may_name_a_backend_that_joins_one_of_the_specs(codes_of: Codes) -> None:
    text = (
        GOOD.replace("[cpu]", "[rocm]")
        + "config: [{when: {backend: vendor}, set: {freezing: true}}]\n"
    )
    assert codes_of(text, backends=VENDOR) == []
    assert codes_of(text) == ["8:27 unknown-backend"]


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ('config: {max_autotune: "yes"}\n', "8:24 option-value"),
        ("config: {max_autotune: null}\n", "8:24 option-value"),
        ("config: {max_autotune: [true]}\n", "8:24 option-value"),
        ("config: {freezing: 1}\n", "8:20 option-value"),
        ("config: [{set: {realize_reads_threshold: 1.5}}]\n", "8:42 option-value"),
        ("config: {memory_pool: outputz}\n", "8:23 option-value"),
        ("dynamo_config: {recompile_limit: many}\n", "8:34 option-value"),
        ("functorch_config: {enable_autograd_cache: off}\n", "8:43 option-value"),
        ("control: {config: {freezing: none}}\n", "8:30 option-value"),
        ("compile: {options: {max_autotune: tru}}\n", "8:35 option-value"),
        ("compile: {mode: max-autotun}\n", "8:17 unknown-mode"),
        ("control: {compile: {mode: reduce_overhead}}\n", "8:27 unknown-mode"),
        (
            'matrix: {tune: [true, "no"]}\nconfig: {max_autotune: "{{ tune }}"}\n',
            "9:10 option-value",
        ),
        ('matrix: {mode: [default, best]}\ncompile: {mode: "{{ mode }}"}\n', "9:11 unknown-mode"),
        (
            'matrix: {tune: [1]}\ncompile: {options: {max_autotune: "{{ tune }}"}}\n',
            "9:11 option-value",
        ),
        ("compile: {options: {guard_filter_fn: true}}\n", "8:38 no-guard-filter"),
        (
            'matrix: {keep: [7]}\ncompile: {options: {guard_filter_fn: "{{ keep }}"}}\n',
            "9:11 no-guard-filter",
        ),
        ("compile: {options: {use_aoti: true}}\n", "8:21 aoti-option"),
        ("compile: {options: {guard_filter: true}}\n", "8:21 unknown-option"),
        ("config: {guard_filter_fn: true}\n", "8:10 guard-filter-as-option"),
        ("matrix: {n: [1, 2]}\n", "8:10 unused-key"),
        ('matrix: {n: [1, 2]}\ncovers: ["any[{{ n }}]"]\n', "8:10 key-of-texts"),
        ("matrix: {n: [1, 2]}\nexclude: [{n: 1, reason: not this one}]\n", "8:10 unused-key"),
    ],
)
def test_a_mistake_in_what_is_added_to_a_spec(more: str, code: str, codes_of: Codes) -> None:
    assert codes_of(GOOD + more) == [code]


def test_options_of_a_backend_and_of_a_folder_are_judged_too(codes_of: Codes) -> None:
    vendor = (
        "mine: {summary: A device of mine, device: cpu, proof: {graphs: {min: 1}}, config: "
        "{freezing: often}}\n"
    )
    assert codes_of(GOOD, backends=vendor) == ["vendor.yaml:1:94 option-value"]
    assert codes_of({"a/_defaults.yaml": "config: {freezing: often}\n", "a/x.yaml": GOOD}) == [
        "a/_defaults.yaml:1:20 option-value"
    ]


def test_an_input_of_the_spec_is_made_before_any_step(codes_of: Codes) -> None:
    text = GOOD.replace("[{rand: [4, 4]}, ", "[{ref: made}, ")
    steps = (
        "steps:\n  - api: {call: json.loads, args: ['1'], as: made}\n  - call: {}\n    expect: "
        "[{runs: {}}]\n"
    )
    assert codes_of(text[: text.index("expect:")] + steps) == ["6:16 before-its-step"]
    assert (
        codes_of(
            GOOD[: GOOD.index("expect:")]
            + steps.replace("call: {}", "call: {inputs: [{ref: made}, 2]}")
        )
        == []
    )


def test_the_mistake_of_one_file_hides_no_other(codes_of: Codes) -> None:
    files = {
        "a.yaml": "a: [",
        "b.yaml": GOOD.replace("[cpu]", "[rocm-ck]") + "config: {max_autotune: false}\n",
        "c.yaml": GOOD + "config: {freezin: true}\n",
        "d/_defaults.yaml": "x: 1\n",
        "d/e.yaml": GOOD,
    }
    wrong = ["a.yaml", "b.yaml", "c.yaml", "d/_defaults.yaml"]
    assert [line.split(":")[0] for line in codes_of(files, backends="vendor: {}\n")] == [
        *wrong,
        "vendor.yaml",
    ]
    assert [line.split(":")[0] for line in codes_of(files)] == wrong


# -- names that are looked up ----------------------------------------------------------------------


def test_looking_a_name_up_imports_nothing(
    codes_of: Codes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "trap" / "inner.py").write_text("def there(): ...\nraise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    functions = {
        "a.yaml": "api: trap.inner.there",
        "b.yaml": 'ref: "trap.inner:there"',
        "c.yaml": "api: trap.inner.ther",
    }
    specs = {
        name: with_function(f"function: {{{function}}}") for name, function in functions.items()
    }
    assert codes_of(specs) == ["c.yaml:3:17 unknown-module-name"]
    assert "trap" not in sys.modules


def test_a_package_that_is_required_is_not_looked_for(codes_of: Codes) -> None:
    text = with_function('function: {ref: "no_such_package.module:fn"}')
    assert codes_of(text) == ["3:17 no-package"]
    assert codes_of(text + "requires: [{module: no_such_package}]\n") == []


def test_names_of_another_torch_are_left_to_the_worker(codes_of: Codes) -> None:
    api = with_function("function: {api: torch._inductor.codecache.OfAnotherTorch}")
    raises = GOOD.replace(
        "[{close: {to: eager}}]", "[{raises: {type: torch._dynamo.exc.OfAnotherTorch}}]"
    )
    assert [codes_of(text) for text in (api, raises)] == [
        ["3:17 unknown-module-name"],
        ["7:26 unknown-module-name"],
    ]
    assert [codes_of(text + 'requires: [{torch: ">=2.13"}]\n') for text in (api, raises)] == [
        [],
        [],
    ]


# -- names of Python -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "def f(a, /, b=1, *c, d, **e): return a, b, c, d, e",
        "def f(x):\n    y = [z for z in x if z]\n    return {k: v for k, v in y}, (w for w in x)",
        "def f(x):\n    return [(a := b) for b in x], a",
        "def f():\n    global g\n    g = 1\ndef h(): return g",
        "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n        "
        "return n\n    return g",
        "class A:\n    b = 1\n    c = b\n    def m(self): return __class__, super().m()",
        "def late(): return made()\ndef made(): return late",
        "try:\n    import nothing\nexcept ImportError as error:\n    nothing, why = None, error",
        "try:\n    found = unicode\nexcept NameError:\n    found = str",
        "def f(x):\n    match x:\n        case {'a': b, **rest}: return b, rest\n        case "
        "[c, *d]: return c, d",
        "for i in range(3): last = i\nwith open('a') as stream: text = stream.read()",
        "import os.path as p, sys\nfrom json import loads as l\ndef f(): return p, sys, l",
        "def f(x):\n    del x\n    return __name__, __file__, __debug__",
        "def f(x: int = 3, *, y: 'anything' = None) -> bool: return lambda z=x: z",
        "async def f(x):\n    async for y in x:\n        yield [z async for z in y]",
        "def f(x):\n    try: x = 1\n    except* ValueError as group: x = group\n    return x",
        "y: int = 1\ndef f(): return y",
        *(
            "exec('a = 1')\nunseen",
            "globals()['a'] = 1\nunseen",
            "from os import *\nunseen",
            "vars()['a'] = 1\nunseen",
        ),
        "import sys\nsys.modules[__name__].a = 1\nunseen",
    ],
)
def test_names_that_are_or_may_be_bound_are_no_problem(text: str, codes_of: Codes) -> None:
    assert codes_of(with_prelude(text)) == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("def f(x): return xx", ["9:20"]),
        ("def f(x):\n    def g(y): return y + z\n    return g", ["10:28"]),
        ("class A:\n    b = 1\n    def m(self): return b", ["11:27"]),
        ("@decorated\ndef f(x=default, *, y=other): return x", ["9:4", "10:11", "10:25"]),
        ("def f(x: Kind) -> Other: return x", ["9:12", "9:21"]),
        ("class A(Base, metaclass=Meta): pass", ["9:11", "9:27"]),
        ("def f(x): return [y for y in z], y", ["9:32", "9:36"]),
        ("f = lambda a: a + b", ["9:21"]),
        ("def f():\n    x = 1\ndef g(): return x", ["11:19"]),
        ("def f(x):\n    return [a for a in x for b in c if d]", ["10:37", "10:42"]),
    ],
)
def test_names_that_nothing_binds_are_found(text: str, places: list[str], codes_of: Codes) -> None:
    assert codes_of(with_prelude(text)) == [f"{place} undefined-name" for place in places]


@pytest.mark.parametrize(
    ("text", "more", "code"),
    [
        ("return x @ yy", "", "5:18 undefined-name"),
        ("return helpr(x)", "prelude: |\n  def helper(x): return x\n", "5:14 undefined-name"),
        ("return math.pi * x", "", "5:14 undefined-module"),
        ("return x * size", 'matrix: {size: [1]}\nenv: {A: "{{ size }}"}\n', "5:18 undefined-key"),
        ("return x * weight", "let: {weight: 3}\n", "5:18 undefined-value"),
        (
            "return x * params.sise",
            'matrix: {size: [1, 2]}\nenv: {A: "{{ size }}"}\n',
            "5:18 unknown-matrix-key",
        ),
        (
            'return x * getattr(params, "sise")',
            'matrix: {size: [1, 2]}\nenv: {A: "{{ size }}"}\n',
            "5:18 unknown-matrix-key",
        ),
        (
            "return [x * params.dtype for _ in y]",
            'matrix: {size: [1, 2]}\nenv: {A: "{{ size }}"}\n',
            "5:19 unknown-matrix-key",
        ),
    ],
)
def test_a_name_in_a_function_is_told_with_its_place(
    text: str, more: str, code: str, codes_of: Codes
) -> None:
    assert codes_of(GOOD.replace("return x @ y", text) + more) == [code]


def test_preludes_of_a_folder_and_of_a_spec_are_one_module(codes_of: Codes) -> None:
    defaults = "prelude: |\n  def early(): return late()\n"
    assert (
        codes_of(
            {
                "a/_defaults.yaml": defaults,
                "a/x.yaml": GOOD + "prelude: |\n  def late(): return early\n",
            }
        )
        == []
    )

"""Names that nothing defines, wrong uses of ``params``, and keys of the matrix that nothing names."""

import re

import pytest

from tests.conftest import GOOD


def with_prelude(text: str) -> str:
    """Return a spec whose prelude is a text."""
    return GOOD + "prelude: |\n" + "".join(f"  {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "def f(a, /, b=1, *c, d, **e): return a, b, c, d, e",
        "def f(x):\n    y = [z for z in x if z]\n    return {k: v for k, v in y}, (w for w in x)",
        "def f(x):\n    return [(a := b) for b in x], a",
        "def f():\n    global g\n    g = 1\ndef h(): return g",
        "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n        return n\n    return g",
        "class A:\n    b = 1\n    c = b\n    def m(self): return __class__, super().m()",
        "def late(): return made()\ndef made(): return late",
        "try:\n    import nothing\nexcept ImportError as error:\n    nothing, why = None, error",
        "try:\n    found = unicode\nexcept NameError:\n    found = str",
        "def f(x):\n    match x:\n        case {'a': b, **rest}: return b, rest\n        case [c, *d]: return c, d",
        "def f(x):\n    match x:\n        case e: return e",
        "for i in range(3): last = i\nwith open('a') as stream: text = stream.read()",
        "import os.path as p, sys\nfrom json import loads as l\ndef f(): return p, sys, l",
        "def f(x):\n    del x\n    return __name__, __file__, __debug__",
        "def f(x: int = 3, *, y: 'anything' = None) -> bool: return lambda z=x: z",
        "async def f(x):\n    async for y in x:\n        yield [z async for z in y]",
        "def f(x):\n    try: x = 1\n    except* ValueError as group: x = group\n    return x",
        "x: int\nx = 1\ny: int = 1\ndef f(): return x, y",
    ],
)
def test_names_that_are_bound_are_no_problem(text, problems_of):
    assert problems_of(with_prelude(text)) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(x): return xx", ["xx"]),
        ("def f(x):\n    def g(y): return y + z\n    return g", ["z"]),
        ("class A:\n    b = 1\n    def m(self): return b", ["b"]),
        ("@decorated\ndef f(x=default, *, y=other): return x", ["decorated", "default", "other"]),
        ("def f(x: Kind) -> Other: return x", ["Kind", "Other"]),
        ("class A(Base, metaclass=Meta): pass", ["Base", "Meta"]),
        ("def f(x): return [y for y in z], y", ["z", "y"]),
        ("f = lambda a: a + b", ["b"]),
        ("def f():\n    x = 1\ndef g(): return x", ["x"]),
        ("def f(x): return f'{x} {missing!r:>{width}}'", ["missing", "width"]),
        ("def f(x):\n    return [a for a in x for b in c if d]", ["c", "d"]),
    ],
)
def test_names_that_nothing_binds_are_found(text, names, problems_of):
    assert [re.findall(r"undefined name '(\w+)'", line) for line in problems_of(with_prelude(text))] == [[name] for name in names]


@pytest.mark.parametrize(
    "text", ["exec('a = 1')", "globals()['a'] = 1", "from os import *", "import sys\nsys.modules[__name__].a = 1", "vars()['a'] = 1"]
)
def test_code_that_binds_names_unseen_is_not_judged(text, problems_of):
    assert problems_of(with_prelude(f"{text}\nalso = unseen")) == []


def with_function(good: str, text: str, more: str = "") -> str:
    return good.replace("return x @ y", text) + more


@pytest.mark.parametrize(
    ("text", "more", "line"),
    [
        ("return x @ yy", "", "5:18: undefined name 'yy' (did you mean 'y'?)"),
        ("return torhc.sin(x)", "", "5:14: undefined name 'torhc' (did you mean 'torch'?)"),
        ("return helpr(x)", "prelude: |\n  def helper(x): return x\n", "5:14: undefined name 'helpr' (did you mean 'helper'?)"),
        ("return math.pi * x", "", "5:14: undefined name 'math' (import it)"),
        ("return x * size", 'matrix: {size: [1]}\nenv: {A: "{{ size }}"}\n', "(a key of the matrix is read as params.size)"),
        ("return x * weight", "let: {weight: 3}\n", "(pass a value of let or a result as an argument, {ref: weight}"),
        ("return zzqqy(x)", "", "(define it here or in prelude:, or import it)"),
    ],
)
def test_an_undefined_name_in_a_function_is_told_with_its_place(text, more, line, good, problems_of):
    (found,) = problems_of(with_function(good, text, more))
    assert line in found


def test_preludes_of_a_folder_and_of_a_spec_are_one_module(good, problems_of):
    defaults = "prelude: |\n  def early(): return late()\n"
    assert problems_of({"a/_defaults.yaml": defaults, "a/x.yaml": good + "prelude: |\n  def late(): return early\n"}) == []


# -- params ---------------------------------------------------------------------------------------------------------

MATRIX = 'matrix: {size: [1, 2]}\nenv: {A: "{{ size }}"}\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("return x * params.sise", "unknown matrix key 'sise' in params (did you mean 'size'?)"),
        ('return x * getattr(params, "sise")', "unknown matrix key 'sise' in params (did you mean 'size'?)"),
        ("return [x * params.dtype for _ in y]", "unknown matrix key 'dtype' in params (allowed: backend, device, size)"),
    ],
)
def test_params_has_the_keys_of_the_matrix_as_attributes(text, problem, good, problems_of):
    (found,) = problems_of(with_function(good, text, MATRIX))
    assert problem in found


# -- keys that nothing names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ("matrix: {n: [1, 2]}\n", "nothing uses it"),
        ('matrix: {n: [1, 2]}\ncovers: ["any[{{ n }}]"]\n', "only summary and covers use it"),
        ("matrix: {n: [1, 2]}\nexclude: [{n: 1, reason: not this one}]\n", "nothing uses it"),
    ],
)
def test_a_key_that_changes_nothing_is_refused(more, where, good, problems_of):
    (found,) = problems_of(good + more)
    assert f"8:10: the matrix key 'n' changes nothing but the seed of its cases: {where}" in found


@pytest.mark.parametrize(
    "more",
    [
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
def test_a_key_that_is_named_is_taken(more, good, problems_of):
    assert problems_of(good + more) == []

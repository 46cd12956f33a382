"""Python of a spec is real Python: tracebacks, ``inspect`` and ``linecache`` name the YAML file and
its true lines.
"""

import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest

from torch_conformance.language.read.anatomy import take_apart
from torch_conformance.language.read.yaml_source import read
from torch_conformance.worker.case.source_module import SpecModule


def blocks_of(tmp_path: Path, text: str) -> tuple[SpecModule, dict[str, Any], list[Any], str]:
    """Return a module, the functions' blocks by name, the preludes' blocks, and the file as
    shown.
    """
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    anatomy = take_apart(read(path), "")
    assert anatomy.problems == ()

    def plain(block: Any) -> dict[str, Any]:
        return {"name": block.name, "file": block.file, "line": block.line, "text": block.text}

    functions = {name: plain(raw.block) for name, raw in anatomy.functions.items()}
    return (
        SpecModule(str(path), {"given": 7}),
        functions,
        [plain(block) for block in anatomy.preludes],
        anatomy.document.file,
    )


LITERAL = """\
summary: Literal blocks
backends: [cpu]
prelude: |
  CONSTANT = 3

  def helper(x):
      # a comment counts
      return x + CONSTANT + given

  def boom(x):
      raise KeyError(x)
functions:
  one: |
    def fn(x):
        y = helper(x)

        return y * 2
  two: |
    def fn(x):
        return boom(x)
"""


def line_of(text: str, words: str) -> int:
    (number,) = [number for number, line in enumerate(text.splitlines(), 1) if words in line]
    return number


def test_literal_blocks_have_their_true_lines(tmp_path):
    module, functions, (prelude,), file = blocks_of(tmp_path, LITERAL)
    module.execute(prelude)
    one, two = (module.function(functions[name], "fn") for name in ("one", "two"))
    assert one(1) == (1 + 3 + 7) * 2
    with pytest.raises(KeyError) as caught:
        two("x")
    frames = traceback.extract_tb(caught.value.__traceback__)[1:]
    assert [(frame.filename, frame.lineno, frame.name) for frame in frames] == [
        (file, line_of(LITERAL, "return boom(x)"), "fn"),
        (file, line_of(LITERAL, "raise KeyError"), "boom"),
    ]
    assert [frame.line for frame in frames] == ["return boom(x)", "raise KeyError(x)"]


def test_two_functions_of_one_name_are_two(tmp_path):
    module, functions, (prelude,), _ = blocks_of(tmp_path, LITERAL)
    module.execute(prelude)
    one, two = (module.function(functions[name], "fn") for name in ("one", "two"))
    assert one is not two
    assert inspect.getsource(one) == "def fn(x):\n    y = helper(x)\n\n    return y * 2\n"
    assert inspect.getsource(two) == "def fn(x):\n    return boom(x)\n"
    assert "fn" not in module.namespace


@pytest.mark.parametrize(
    "line",
    [
        'function: "def fn(x): return x + 1"',
        "function: 'def fn(x): return x + 1'",
        "function: def fn(x):return x + 1",
        'functions: {one: "def fn(x): return x + 1", two: "def fn(x): return x + 2"}',
        "functions:\n  one: 'def fn(x): return x + 1'\n  two: 'def fn(x): return x + 2'",
        'function: "def fn(x):\\n    y = x + 1\\n    return y"',
        'function: "def fn(x):\n\n    \\  return x + 1"',
    ],
)
def test_quoted_blocks_have_their_source(tmp_path, line):
    module, functions, _, file = blocks_of(
        tmp_path, f"summary: A quoted block\nbackends: [cpu]\n{line}\ninputs: []\nexpect: []\n"
    )
    made = [(block, module.function(block, "fn")) for block in functions.values()]
    for number, (block, fn) in enumerate(made, 1):
        assert fn(1) == 1 + number
        assert inspect.getsource(fn).rstrip("\n") == block["text"].rstrip("\n")
        assert fn.__code__.co_filename.startswith(file)
        assert fn.__code__.co_firstlineno == block["line"]


@pytest.mark.parametrize("prelude", ["prelude: |\n", 'prelude: ""\n', "prelude: |\n\n"])
def test_an_empty_prelude_defines_nothing(tmp_path, prelude):
    text = f"summary: Nothing\nbackends: [cpu]\n{prelude}function: |\n  def f(x):\n      return x\n"
    module, functions, preludes, _ = blocks_of(tmp_path, text)
    for block in preludes:
        module.execute(block)
    (block,) = functions.values()
    assert module.function(block, "f")(1) == 1

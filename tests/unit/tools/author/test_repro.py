"""The script of a case, run: exit 1 where a claim does not hold, 0 where every claim is checked and
holds; else the script names the claims that it does not check, and exits with 3.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import HERE, shipped
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import load
from torch_conformance.machine.redaction import KNOWN, KnownSecrets
from torch_conformance.plan.script import NothingChecked, Script, script_of

ADD = "function: |\n  def fn(x):\n      return x + 1\ninputs: [{ones: [3]}]\n"
WRONG = (
    "function: |\n  def fn(x):\n      return x + (2 if torch.compiler.is_compiling() else "
    "1)\ninputs: [{ones: [3]}]\n"
)
NAN = (
    "function: |\n  def fn(x):\n      return x + (1 if torch.compiler.is_compiling() else "
    'float("nan"))\ninputs: [{ones: [3]}]\n'
)


def script_for(folder: Path, text: str, backend: str = "cpu") -> Script:
    path = folder / "planted.yaml"
    path.write_text(f"summary: A planted case\nbackends: [{backend}]\n{text}", encoding="utf-8")
    (case,) = load([path]).cases
    return script_of(case, surroundings_for(shipped()[case.backend], HERE), {}, "2.13.0")


def test_a_script_of_a_small_function_is_short_and_imports_torch_alone(tmp_path: Path) -> None:
    text = script_for(tmp_path, f"{ADD}expect: [{{close: {{to: eager}}}}]\n").text
    main = text[text.index("def main():") :]
    assert len(main.splitlines()) <= 25
    assert "import torch_conformance" not in text


IS_COMPILING = "torch.compiler.is_compiling()"
CLOSE = "expect: [{close: {to: eager}}]\n"
COUNTING = """prelude: |
  class Counting(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.count = 0
          self.register_buffer("total", torch.zeros(3))

      def forward(self, x):
          self.count = 2 if ATTRIBUTE and torch.compiler.is_compiling() else 1
          self.total += 2 if BUFFER and torch.compiler.is_compiling() else 1
          return x * 2
function: {module: Counting}
inputs: [{ones: [3]}]
"""


def function(body: str, arguments: str = "x", inputs: str = "{ones: [3]}") -> str:
    lines = "".join(f"      {line}\n" for line in body.split("\n"))
    return f"function: |\n  def fn({arguments}):\n{lines}inputs: [{inputs}]\n"


def otherwise(compiled: str, eager: str, **words: str) -> str:
    """Return a function with another statement where it is compiled."""
    return function(
        f"if {IS_COMPILING}:\n    {compiled}\nelse:\n    {eager}\nreturn x * 2", **words
    )


def by_keyword(compiled: str, eager: str) -> str:
    """Return a spec whose call has an argument by keyword."""
    return (
        otherwise(compiled, eager, arguments="x, *, scale").replace("return x", "return x * scale")
        + "steps: [{call: {kwargs: {scale: {ones: [3]}}}, expect: [{close: {to: eager}}]}]\n"
    )


RAISES = function("raise ValueError('planted')")
SCRIPTS = {
    # numbers and forms
    ADD + CLOSE: 0,
    f"{WRONG}expect: [{{close: {{to: eager, atol: 2.0, rtol: 0.0}}}}]\n": 0,
    WRONG + CLOSE: 1,
    NAN + CLOSE: 1,
    f"{function(f'return x * (1.0000002 if {IS_COMPILING} else 1)')}"
    "expect: [{close: {to: eager, exact: true}}]\n": 1,
    # less than the floor of the script, and the median is beyond the runner's bound
    function(f"return x * (1.000002 if {IS_COMPILING} else 1)", inputs="{randn: [99]}") + CLOSE: 3,
    function(f"return -x * 0 if {IS_COMPILING} else x * 0")
    + "expect: [{close: {to: eager, exact: true}}]\n": 1,
    function(f"return [x + 1] if {IS_COMPILING} else (x + 1,)") + CLOSE: 1,
    function(
        f"return (x + 1).t().contiguous().t() if {IS_COMPILING} else x + 1", inputs="{ones: [3, 4]}"
    )
    + CLOSE: 1,
    # what a call leaves beside its result
    function("x.add_(1)\nreturn x") + CLOSE: 0,
    function(f"return x + 0 if {IS_COMPILING} else x") + CLOSE: 1,
    function(f"y = x + 1\nreturn (y, y) if {IS_COMPILING} else (y, y + 0)") + CLOSE: 1,
    function(
        f"y = x * 2\nreturn y.detach() if {IS_COMPILING} else y",
        inputs="{ones: [3], requires_grad: true}",
    )
    + CLOSE: 1,
    otherwise("x.add_(2)", "x.add_(1)")
    + "expect: [{close: {to: eager, atol: 9.0, rtol: 0.0}}]\n": 0,
    otherwise("x.add_(0)", "pass") + CLOSE: 0,
    otherwise("x.add_(1e-30)", "x.add_(1)") + CLOSE: 1,
    otherwise("box[0] = 2", "box[0] = 1", arguments="x, box", inputs="{ones: [3]}, {value: [5]}")
    + CLOSE: 1,
    otherwise("torch.rand(2)", "pass") + CLOSE: 1,
    # arguments by keyword
    by_keyword("pass", "pass"): 0,
    by_keyword("pass", "scale.add_(1)"): 1,
    by_keyword("scale = scale + 1", "pass"): 1,
    "prelude: |\n  seen = []\n" + otherwise("seen.append(1)", "pass") + CLOSE: 1,
    # both sides share what eager changes there
    "prelude: |\n  seen = []\n" + otherwise("seen.append(1)", "seen.append(1)") + CLOSE: 3,
    COUNTING.replace("ATTRIBUTE", "False").replace("BUFFER", "False") + CLOSE: 0,
    COUNTING.replace("ATTRIBUTE", "True").replace("BUFFER", "False") + CLOSE: 1,
    COUNTING.replace("ATTRIBUTE", "False").replace("BUFFER", "True") + CLOSE: 1,
    # exceptions
    f"{RAISES}expect: [{{raises: {{type: ValueError, match: planted}}}}]\n": 0,
    f"{RAISES}expect: [{{raises: {{as: eager}}}}]\n": 0,
    f"{RAISES}expect: [{{raises: {{type: ValueError, match: another}}}}]\n": 1,
    f"{RAISES}expect: [{{raises: {{type: ArithmeticError, match: planted}}}}]\n": 1,
    f"{ADD}expect: [{{raises: {{type: ValueError, match: planted}}}}]\n": 1,
    f"{RAISES}expect: [{{runs: {{}}}}]\n": 1,
    # counts, values, claims that only the runner checks
    f"{ADD}expect: [{{counter: {{stats.unique_graphs: 1}}}}]\n": 0,
    f"{ADD}expect: [{{counter: {{stats.unique_graphs: 2}}}}]\n": 1,
    f"{ADD}expect: [{{equals: {{output: [2.0, 2.0, 2.0]}}}}]\n": 0,
    f"{ADD}expect: [{{equals: {{output: [2.0, 3.0, 2.0]}}}}]\n": 1,
    f"{ADD}expect: [{{close: {{to: eager}}}}, {{deterministic: {{}}}}]\n": 3,
    f"{ADD}expect: [{{kernels: {{compiled: 0}}}}]\n": 3,
}
"""Specs on the backend eager, and the exit code of the script of each."""

FORKS = """
import os, runpy, sys, traceback
import torch, torch._dynamo, torch._inductor.compile_fx

# what the first compile imports and builds, once for all scripts
torch.compile(lambda x: x + torch.compiler.is_compiling(), backend="eager")(torch.ones(2))
torch._dynamo.reset()
torch._dynamo.utils.counters.clear()

for name in sys.argv[1:]:
    if not os.fork():
        for stream, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv[:] = [name]
        code = 0
        try:
            runpy.run_path(name, run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        os._exit(code)  # the usual end of a process with torch takes a second
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print(name, code, flush=True)
"""
"""A program that imports torch once and runs each script in a process of its own."""


@pytest.mark.torch
@pytest.mark.timeout(1000)
def test_the_exit_code_is_that_of_what_is_checked(tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.py" for index in range(len(SCRIPTS))]
    for path, text in zip(paths, SCRIPTS, strict=True):
        path.write_text(script_for(tmp_path, text, "eager").text)
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    assert done.stdout.splitlines() == [
        f"{path} {code}" for path, code in zip(paths, SCRIPTS.values(), strict=True)
    ]
    for path, (text, code) in zip(paths, SCRIPTS.items(), strict=True):
        printed = Path(f"{path}.out").read_text()
        assert ("every claim of the case holds" in printed) is (code == 0), text
        assert ("not checked:" in printed) is (code == 3), text
        if text == WRONG + CLOSE:
            assert "output: greatest error against float64: compiled 1, eager 0" in printed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"prelude: |\n  from torch_conformance.model import case\n{ADD}expect: [{{close: "
            f"{{to: eager}}}}]\n",
            "imports the runner",
        ),
        (
            f"spies: {{seen: {{method: torch.Tensor.add}}}}\n{ADD}"
            "expect: [{close: {to: eager}}, {calls: {of: seen, count: 0}}]\n",
            "only the runner has",
        ),
    ],
)
def test_a_case_that_torch_alone_cannot_show_has_no_script(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(NothingChecked, match=reason):
        script_for(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        '"""\\nimport os; os._exit(9)\\n"""',
        "'; import os; os._exit(9); '",
        "\\u2028\\u0085import os\\r\\nos._exit(9)",
    ],
)
def test_text_of_a_spec_stays_a_literal_or_one_comment_line(tmp_path: Path, text: str) -> None:
    quoted = '"' + text.replace('"', '\\"') + '"'
    script = script_for(
        tmp_path, f"env: {{PLANTED: {quoted}}}\n{ADD}expect: [{{close: {{to: eager}}}}]\n"
    )
    assert not [
        line
        for line in script.text.splitlines()
        if line.strip().startswith(("os._exit", "import os;", "import os\r"))
    ]
    compile(script.text, "repro.py", "exec")


def test_values_of_secrets_are_not_in_a_script(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: vars(KNOWN).update(vars(KnownSecrets())))
    KNOWN.learn("hunter2-planted-secret")
    environment = "env: {HF_TOKEN: hf_abcdefghijklmnop, PLANTED: hunter2-planted-secret}\n"
    script = script_for(tmp_path, f"{environment}{ADD}expect: [{{close: {{to: eager}}}}]\n")
    assert "hf_abcdef" not in script.text
    assert "hunter2" not in script.text
    assert any("HF_TOKEN" in one for one in script.unchecked)

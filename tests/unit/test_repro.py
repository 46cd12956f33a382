"""The script of a case, run: exit 1 where the case fails for a reason that it checks; the other
claims are named.
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
EAGER = "compile: {backend: eager}\n"
WRONG = (
    "function: |\n  def fn(x):\n      return x + (2 if torch.compiler.is_compiling() else "
    "1)\ninputs: [{ones: [3]}]\n"
)
NAN = (
    "function: |\n  def fn(x):\n      return x + (1 if torch.compiler.is_compiling() else "
    'float("nan"))\ninputs: [{ones: [3]}]\n'
)


def script_for(folder: Path, text: str) -> Script:
    path = folder / "planted.yaml"
    path.write_text(f"summary: A planted case\nbackends: [cpu]\n{text}", encoding="utf-8")
    (case,) = load([path]).cases
    return script_of(case, surroundings_for(shipped()[case.backend], HERE), {}, "2.13.0")


def test_a_script_of_a_small_function_is_short_and_imports_torch_alone(tmp_path: Path) -> None:
    text = script_for(tmp_path, f"{ADD}expect: [{{close: {{to: eager}}}}]\n").text
    assert len(text.splitlines()) <= 60
    assert "runner" not in text


SCRIPTS = {
    f"{ADD}{EAGER}expect: [{{close: {{to: eager}}}}]\n": 0,
    f"{WRONG}{EAGER}expect: [{{close: {{to: eager, atol: 2.0, rtol: 0.0}}}}]\n": 0,
    f"{WRONG}{EAGER}expect: [{{close: {{to: eager}}}}]\n": 1,
    f"{NAN}{EAGER}expect: [{{close: {{to: eager}}}}]\n": 1,
    f"{ADD}{EAGER}expect: [{{counter: {{stats.unique_graphs: 1}}}}]\n": 0,
    f"{ADD}{EAGER}expect: [{{counter: {{stats.unique_graphs: 2}}}}]\n": 1,
    f"{ADD}{EAGER}expect: [{{close: {{to: eager}}}}, {{deterministic: {{}}}}]\n": 0,
}
"""Specs, and the exit code of the script of each."""

FORKS = """
import os, runpy, sys
import torch, torch._dynamo, torch._inductor.compile_fx

for name in sys.argv[1:]:
    if not os.fork():
        for stream, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{end}", os.O_WRONLY | os.O_CREAT), stream)
        sys.argv[:] = [name]
        runpy.run_path(name, run_name="__main__")
        os._exit(sys.stdout.flush() or 0)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print(name, code, flush=True)
"""
"""A program that imports torch once and runs each script in a process of its own."""


@pytest.mark.torch
def test_the_exit_code_is_that_of_what_is_checked(tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.py" for index in range(len(SCRIPTS))]
    for path, text in zip(paths, SCRIPTS, strict=True):
        path.write_text(script_for(tmp_path, text).text)
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == [
        f"{path} {code}" for path, code in zip(paths, SCRIPTS.values(), strict=True)
    ]
    for path, (text, code) in zip(paths, SCRIPTS.items(), strict=True):
        assert ("AssertionError" in Path(f"{path}.err").read_text()) is (code == 1)
        assert ("deterministic" in Path(f"{path}.out").read_text()) is ("deterministic" in text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"prelude: |\n  from torch_conformance.model import case\n{ADD}expect: [{{close: "
            f"{{to: eager}}}}]\n",
            "imports the runner",
        ),
        (f"{ADD}{EAGER}expect: [{{kernels: {{compiled: 0}}}}]\n", "kernels: "),
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

"""What is printed: escaped whatever it holds, by one writer that nothing goes around."""

import ast
import io
import json
from pathlib import Path

import pytest

from tests.fakes import PACKAGE
from torch_conformance.cli.parser import main
from torch_conformance.machine import output
from torch_conformance.machine.output import guarded
from torch_conformance.model import escaping

WRITERS = ("machine/output.py",)
OTHER_PROGRAMS = (
    "worker/",
    "tools/offline/worker/",
    "tools/attest/ck_generators.py",
    "execute/redis_service.py",
)
"""Run as processes of their own: workers and servers whose output is captured, and commands of
developers.
"""

FORBIDDEN_NAMES = ("print", "pprint", "input")
FORBIDDEN_ATTRIBUTES = (
    "stdout",
    "stderr",
    "__stdout__",
    "__stderr__",
    "print_exc",
    "print_exception",
)


def offences(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in FORBIDDEN_NAMES
        ):
            found.append(f"{path}:{node.lineno}: {node.func.id}")
        is_module = (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("sys", "traceback")
        )
        if is_module and node.attr in FORBIDDEN_ATTRIBUTES:
            found.append(f"{path}:{node.lineno}: {node.value.id}.{node.attr}")
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "os.write"
            and ast.unparse(node.args[0]) in ("1", "2")
        ):
            found.append(f"{path}:{node.lineno}: os.write")
    return found


def test_nothing_prints_but_the_writer() -> None:
    runner = PACKAGE
    names = {path: path.relative_to(runner).as_posix() for path in runner.rglob("*.py")}
    others = [
        path
        for path, name in names.items()
        if name not in WRITERS and not name.startswith(OTHER_PROGRAMS)
    ]
    assert len(others) > 80
    # cli: whatever argparse printed is flushed before its failure is looked for
    found = [
        line
        for path in others
        for line in offences(path)
        if not line.startswith(f"{runner}/cli/parser.py") or "stdout" not in line
    ]
    assert found == []


CI = [
    ("::error::x", "\\x3a:error::x"),
    ("  \u3000::set-output name=x::y", "  \u3000\\x3a:set-output name=x::y"),
    ("a ##vso[task.setvariable]x", "a \\x23#vso[task.setvariable]x"),
    ("a ##[set-env name=x;]y", "a \\x23#[set-env name=x;]y"),
    ("##teamcity[testFailed]", "\\x23#teamcity[testFailed]"),
    ("section_start:1:x", "\\x73ection_start:1:x"),
    ("--- a", "\\x2d-- a"),
    ("+++", "\\x2b++"),
    ("~~~ a", "\\x7e~~ a"),
    ("^^^ +++", "\\x5e^^ +++"),
    ("[[ATTACHMENT|/etc/passwd]]", "\\x5b[ATTACHMENT|/etc/passwd]]"),
    ("travis_fold:start:x", "\\x74ravis_fold:start:x"),
    ("std::vector, a::b ## x [[1]] --flag ---x", "std::vector, a::b ## x [[1]] --flag ---x"),
    ("\x1b[31m::error::x", "\\x3a:error::x"),
    ("\x1b\x1b[0m[31mx", "\\x1b[31mx"),
    (":\x1b[0m:error::x", "\\x3a:error::x"),
    (
        "a\u202eb\u200bc\u2066d\ufeffe\u00adf\u3164g",
        "a\\u202eb\\u200bc\\u2066d\\ufeffe\\xadf\\u3164g",
    ),
    ("\ud800 \x00 \x07 \x9b31m \u2028", "\\ud800 \\x00 \\x07 \\x9b31m \\u2028"),
    ("\U000e0041", "\\U000e0041"),
    ("\u4f60\u597d \u00e9 \U0001f600", "\u4f60\u597d \u00e9 \U0001f600"),
]


@pytest.mark.parametrize(("text", "shown"), CI, ids=range(len(CI)))
def test_ci_commands_and_terminal_sequences_are_escaped(text: str, shown: str) -> None:
    assert escaping.plain(text) == shown
    assert escaping.plain(f"a\n{text}\r{text}") == f"a\n{shown}\n{shown}"
    assert escaping.plain(shown) == shown
    assert escaping.painted(shown) == shown
    assert escaping.one_line(f"  {shown}") == " ".join(shown.split())


@pytest.mark.parametrize(("text", "shown"), CI, ids=range(len(CI)))
def test_json_has_same_value_without_ci_commands(text: str, shown: str) -> None:
    made = escaping.json_text({"a": [text]})
    assert json.loads(made) == {"a": [text]}
    assert made.isascii()
    assert escaping.plain(made) == made


def test_our_own_colours_stay_and_others_go() -> None:
    stream = io.StringIO()
    output.paint(stream, "\x1b[31mFAIL\x1b[0m \x1b]0;title\x07\n\x1b[31m\n::error::x\n\rbar")
    assert (
        stream.getvalue()
        == "\x1b[31mFAIL\x1b[0m \\x1b]0;title\\x07\n\x1b[31m\n\\x3a:error::x\n\rbar"
    )


def test_stream_escapes_output_that_bypasses_writer(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        print("::error::x", end="")
        print("y ::z\n::stop-commands::t")
        print("\x1b[31mred", "--token=s3cret")
        output.note("::error::x --token=s3cret")
    out, err = capsys.readouterr()
    assert out == "\\x3a:error::xy ::z\n\\x3a:stop-commands::t\nred --token=s3cret\n"
    assert err == "\\x3a:error::x --token=***\n"


HOSTILE = """\
summary: "x\\n::error::boo \\e[31m ##vso[task.x]y"
backends: [cpu]
function: |
  def fn(x):
      return x
inputs: [{rand: [4]}]
expect: [{close: {to: eager}}]
"""
COMMANDS = [
    ["validate", "."],
    ["list", ".", "--json"],
    ["explain", "*", "."],
    ["run", "\n::error::no such"],
    ["run", ".", "--select", "\n::error::none", "--out", "out"],
    ["list", "--jobs\n::error::x"],
    ["merge", "\n::error::x", "--json"],
    ["merge", "\n::error::x"],
    ["audit", "\n##vso[x]"],
]


@pytest.mark.parametrize("invalid", [False, True])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_prints_ci_commands(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], invalid: bool
) -> None:
    Path("::error::file.yaml").write_text(HOSTILE + ("::error::key: 1\n" if invalid else ""))
    main(arguments)
    out, err = capsys.readouterr()
    for text in (out, err):
        assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
        assert "##vso[" not in text
        assert "\x1b" not in text
    assert out or err

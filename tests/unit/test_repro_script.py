"""The script of a case, for every kind of expectation and of step: it is Python without the runner, and names what it cannot say."""

import ast
from pathlib import Path

import pytest

from runner.core.escaping import line
from runner.plan.script import NothingChecked, Script
from runner.plan.script import expected as expectation_writers
from runner.plan.script import steps as step_writers
from runner.plan.script.values import WRITTEN, literal
from runner.system.redaction import KNOWN
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.inputs import INPUTS
from runner.vocabulary.steps import STEPS
from tests import repro_cases
from tests.repro_cases import EAGER, FUNCTION, scripts_for

ROWS = repro_cases.rows()
SAID = {kind for kind, row in repro_cases.EXPECTATIONS.items() if row.bad}


def test_every_kind_has_a_writer_and_a_row():
    assert list(expectation_writers.WRITERS.keys() - EXPECTATIONS.keys()) == []
    assert expectation_writers.WRITERS.keys() == EXPECTATIONS.keys()
    assert step_writers.WRITERS.keys() == STEPS.keys()
    assert set(WRITTEN) == set(INPUTS)
    assert repro_cases.EXPECTATIONS.keys() | set(repro_cases.OFFLINE) == EXPECTATIONS.keys()
    assert repro_cases.STEPS.keys() | {"samples", "triton"} == STEPS.keys()


def imported(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_python_that_imports_the_runner_is_refused(tmp_path: Path) -> None:
    prelude = "prelude: |\n  from runner.core import case\n"
    text = f"summary: A case that imports us\nbackends: [cpu]\n{prelude}{FUNCTION}{EAGER}expect: [{{runs: {{}}}}]\n"
    with pytest.raises(NothingChecked, match="imports the runner"):
        script_for(tmp_path, text)


def steps_of(text: str) -> str:
    """Return the body of the case, without the helpers."""
    (main,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "repro_main"]
    return ast.unparse(main)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Script | NothingChecked]:
    """The scripts of all rows: ``WORD-good`` and ``WORD-bad``."""
    texts = {f"{word}-{name}".replace("_", "-"): row.spec(body) for word, row in ROWS.items() for name, body in row.bodies()}
    return scripts_for(tmp_path_factory.mktemp("rows"), texts)


@pytest.mark.parametrize("word", ROWS)
def test_a_script_is_python_without_the_runner_and_names_what_it_leaves_out(scripts, word):
    for name, _ in ROWS[word].bodies():
        script = scripts[f"{word}-{name}".replace("_", "-")]
        if isinstance(script, NothingChecked):
            assert not ROWS[word].bad
            assert f": {word}: " in str(script)
            continue
        assert "runner" not in imported(script.text)
        assert "torch" in imported(script.text)
        assert script.text.startswith('"""Shows one case')
        for text in script.left_out:
            assert f"#   {line(text)}\n" in script.text, "what is left out is named in the script too"
        if not ROWS[word].bad and word != "bench":
            assert any(f": {word}: " in text for text in script.left_out), f"{word} is not said, and not named either"


def test_a_bench_is_named(scripts):
    assert any("bench is reported and never judged" in text for text in scripts["bench-good"].left_out)


@pytest.mark.parametrize("kind", sorted(SAID))
def test_a_kind_that_is_said_is_checked_in_the_body(scripts, kind):
    row = repro_cases.EXPECTATIONS[kind]
    word = next(word for word, one in ROWS.items() if one is row)
    function = {"equals": "repro_equals", "differs": "repro_equals", "generated_files": "repro_count", "log": "repro_text"}
    function |= dict.fromkeys(("recompiles", "graph_breaks"), "repro_events")
    assert f"{function.get(kind, f'repro_{kind}')}(" in steps_of(scripts[f"{word}-bad".replace("_", "-")].text)


def script_for(folder: Path, text: str) -> Script:
    found = scripts_for(folder, {"planted": text})["planted"]
    if isinstance(found, NothingChecked):
        raise found
    return found


def test_a_script_in_which_nothing_is_checked_is_refused(tmp_path: Path) -> None:
    text = f"summary: Nothing of it can be said\nbackends: [cpu]\n{FUNCTION}{EAGER}expect: [{{kernels: {{compiled: 0}}}}]\n"
    with pytest.raises(NothingChecked, match="compiled kernels"):
        script_for(tmp_path, text)


HOSTILE = [
    '"""\\nimport os; os._exit(9)\\n"""',
    "'; import os; os._exit(9); '",
    "\\nimport os\\nos._exit(9)  # ",
    "{{ 1 }} #} -->",
    "\\u202e\\u2028\\u0085import os\\r\\nos._exit(9)",
    "\\\\",
]
"""Texts as YAML has them between double quotes."""


def test_hostile_text_stays_a_literal_or_one_comment_line(tmp_path: Path) -> None:
    def spec(text: str) -> str:
        quoted = '"' + text.replace('"', '\\"') + '"'
        return (
            f"summary: {quoted}\nbackends: [cpu]\nenv: {{PLANTED: {quoted}}}\n{FUNCTION}{EAGER}"
            f"steps: [{{call: {{as: first}}, expect: [{{text: {{of: first, contains: {quoted}}}}}, {{runs: {{}}}}]}}]\n"
        )

    texts = {f"planted-{number}": spec(f"harmless words {text}") for number, text in enumerate(["", *HOSTILE])}
    trees = [ast.parse(script.text) for script in scripts_for(tmp_path, texts).values() if isinstance(script, Script)]
    assert len(trees) == len(texts)
    shapes = [[type(node).__name__ for node in ast.walk(tree)] for tree in trees]
    assert all(shape == shapes[0] for shape in shapes), "a text changed the syntax tree"
    attributes = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert "_exit" not in attributes


def test_python_that_hides_or_takes_names_is_executed_from_a_literal(tmp_path: Path) -> None:
    blocks = [
        "def repro_main():\n    pass",
        "x = 'a\u202eb'",
        "from __future__ import annotations",
        "os = None",
        "repro_now = 1",
    ]

    def spec(block: str) -> str:
        prelude = "".join(f"  {one}\n" for one in block.splitlines())
        return f"summary: A case with a prelude\nbackends: [cpu]\nprelude: |\n{prelude}{FUNCTION}{EAGER}expect: [{{runs: {{}}}}]\n"

    for script in scripts_for(tmp_path, {f"planted-{number}": spec(block) for number, block in enumerate(blocks)}).values():
        assert isinstance(script, Script)
        assert "exec(compile(" in script.text
        assert script.text.isascii()


def test_values_of_secrets_are_not_in_a_script(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(KNOWN.forget)
    KNOWN.learn("hunter2-planted-secret")
    text = (
        "summary: A case with variables\nbackends: [cpu]\nenv: {HF_TOKEN: hf_abcdefghijklmnop, PLANTED: hunter2-planted-secret}\n"
        f"{FUNCTION}{EAGER}expect: [{{runs: {{}}}}]\n"
    )
    script = script_for(tmp_path, text)
    assert "hf_abcdef" not in script.text
    assert "hunter2" not in script.text
    assert any("HF_TOKEN" in one for one in script.left_out)


@pytest.mark.parametrize("value", ['"""', "'\n", "\\", "\ud800", "\u202e", float("nan"), float("-inf"), {"a": [None, True]}, (1,), b"\0"])
def test_a_literal_is_ascii_and_has_the_value(value: object) -> None:
    text = literal(value)
    assert text.isascii()
    assert "\n" not in text
    found = eval(text)
    assert found == value or (found != found and value != value)


def test_a_module_that_a_case_requires_is_asked_for(tmp_path: Path) -> None:
    text = f"summary: A case with a module\nbackends: [cpu]\nrequires: [{{module: planted}}]\n{FUNCTION}{EAGER}expect: [{{runs: {{}}}}]\n"
    script = script_for(tmp_path, text)
    assert (
        "if importlib.util.find_spec('planted') is None:\n    print('cannot run here: no module planted')\n    sys.exit(2)" in script.text
    )

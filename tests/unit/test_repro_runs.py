"""Scripts of ``repro`` are run: where the case passes they exit with 0, where it fails with 1, and say what was expected and observed.

Each script runs in a fork of this process, which has imported torch once. ``expected_exit`` of a failing row is that of the runner: the
table of ``tests/repro_cases`` says which body makes the case fail, and a nightly test has the runner judge the same specs.
"""

import io
import os
import resource
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.plan.script import NothingChecked, Script
from runner.record.journal import read_run
from tests import repro_cases
from tests.fakes import import_torch, program
from tests.repro_cases import scripts_for

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

ROWS = repro_cases.rows()
RUN = {word: row for word, row in ROWS.items() if row.bad}
QUICK = ("close", "equals", "calls", "backward", "recompiles")
"""A comparison of numbers, one of data, a spy, gradients, what dynamo did with frames: run each time. The whole table is nightly."""
SLOW = [word for word in RUN if word not in QUICK]


@pytest.fixture(scope="module")
def torch() -> Any:
    return import_torch()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Script | NothingChecked]:
    texts = {f"{word}-{name}".replace("_", "-"): row.spec(body) for word, row in RUN.items() for name, body in row.bodies()}
    return scripts_for(tmp_path_factory.mktemp("rows"), texts)


def run(path: Path, text: str, seconds: int = 100) -> tuple[int, str]:
    """Run a script in a fork of this process; return its exit code and what it printed.

    The limit is one of processor time: a machine that is busy with other work makes a script slow, and not wrong. The alarm ends
    what waits forever.
    """
    path.write_text(text)
    printed = path.with_suffix(".txt")
    child = os.fork()
    if child == 0:
        code = 70
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            signal.alarm(30 * seconds)
            out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout, sys.stderr = io.TextIOWrapper(io.FileIO(1, "w")), io.TextIOWrapper(io.FileIO(2, "w"))
            sys.argv = [str(path)]
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 71
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 72
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), printed.read_text(errors="replace")


def check(tmp_path: Path, scripts: dict[str, Script | NothingChecked], word: str) -> None:
    for name, wanted in (("good", 0), ("bad", 1)):
        script = scripts[f"{word}-{name}".replace("_", "-")]
        assert isinstance(script, Script)
        code, printed = run(tmp_path / f"{name}.py", script.text)
        assert code == wanted, printed
        assert ("FAIL" in printed) is bool(wanted), printed
        assert "expected: " in printed
        assert "observed: " in printed


@pytest.mark.parametrize("word", QUICK)
def test_a_script_fails_where_its_case_fails(torch, scripts, tmp_path, word):
    check(tmp_path, scripts, word)


@pytest.mark.nightly(reason="half a second of CPU for each script; five kinds run above")
@pytest.mark.parametrize("word", SLOW)
def test_each_script_fails_where_its_case_fails(torch, scripts, tmp_path, word):
    check(tmp_path, scripts, word)


@pytest.mark.nightly(reason="the runner judges all rows; above, the table says what it finds")
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize(("name", "outcome"), [("good", "PASS"), ("bad", "FAIL")])
def test_the_runner_finds_the_same(tmp_path: Path, name: str, outcome: str, part: int) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for word, row in list(RUN.items())[part::3]:
        (folder / f"{word.replace('_', '-')}-row.yaml").write_text(row.spec(dict(row.bodies())[name]))
    done = program("run", folder, "--out", tmp_path / "out", "--timeout-factor", 4, timeout=900)
    results = read_run(tmp_path / "out" / "run.jsonl").results
    assert {result.outcome.label for result in results} == {outcome}, done.stdout
    assert len(results) == len(list(folder.iterdir()))
    assert done.returncode == (0 if name == "good" else 1), done.stdout + done.stderr


def test_a_script_ends_with_2_where_the_machine_lacks_the_device(torch, tmp_path, monkeypatch):
    text = f"summary: A case of a GPU\nbackends: [cuda]\n{repro_cases.FUNCTION}expect: [{{runs: {{}}}}]\n"
    script = scripts_for(tmp_path / "specs", {"planted": text})["planted"]
    assert isinstance(script, Script)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(tmp_path / "gpu.py", script.text) == (2, "cannot run here: no device cuda\n")

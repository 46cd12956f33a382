"""The commands of the guides on recorded runs are run, in their order, on runs made by hand. Those of ``run`` are parsed elsewhere."""

import shlex
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.exit_codes import ExitCode
from runner.core.outcomes import Outcome
from tests.fences import every_fence
from tests.recorded import recorded, run_of, write_run

CASE = {"case_id": "padding/one[backend=cpu]", "area": "padding"}


@pytest.mark.parametrize("page", ["docs/guides/compare-runs.md"])
def test_every_command_of_a_page_does_its_work(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = run_of(recorded("one", **CASE), recorded("two"), run_id="run-1")
    after = run_of(recorded("one", Outcome.FAIL, **CASE), recorded("two"), run_id="run-2", started="2026-10-08T12:00:00+00:00")
    newest = run_of(recorded("two"), recorded("two", backend="cuda"), run_id="run-3", started="2026-10-09T12:00:00+00:00")
    for name, run in (("before", before), ("after", after), ("reports/latest", newest)):
        write_run(Path(name), run)
    lines = [line for fence in every_fence() if fence.page == page and fence.mark == "commands" for line in fence.text.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    done = {" ".join(command): main(command) for command in commands if command[0] == "diff"}
    assert len(done) >= 6
    expected = {name: ExitCode.FAILED if "--fail-on" in name else ExitCode.OK for name in done}
    assert done == expected
    assert {name for name in ("diff.html",) if f"html {name}" in " ".join(done)} == {path.name for path in Path().glob("*.html")}

"""``python -m runner.cli.pytest_plugin.child FOLDER``: the run of a session of pytest, as ``run`` does it."""

import ctypes
import dataclasses
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.answering import answered
from runner.cli.parser import parse
from runner.cli.pytest_plugin.session_run import PLACE, REQUEST
from runner.core.case import Case
from runner.core.events import Listener
from runner.core.exit_codes import ExitCode
from runner.core.options import RunOptions
from runner.language.load import load_specs
from runner.language.read.files import SpecPath
from runner.report import table
from runner.run.controller import run_prepared
from runner.run.preparation import Selection, check, choose, prepare
from runner.system.output import guarded

if TYPE_CHECKING:
    from runner.record.run_folder import RunFolder

_PR_SET_PDEATHSIG = 1


def main(folder: Path) -> ExitCode:
    """Run the cases of the request."""
    request = json.loads((folder / REQUEST).read_text("utf-8"))
    _, options = parse(["run", *shlex.split(request["options"])])
    assert isinstance(options, RunOptions)
    wanted = {(Path(file), name) for file, _, name in request["cases"]}
    specs = {Path(file): SpecPath(path=Path(file), root=Path(root)) for file, root, _ in request["cases"]}
    roots = tuple(dict.fromkeys(_shown(spec.root) for spec in specs.values()))
    checked = check(dataclasses.replace(options, paths=roots))
    suite = load_specs(list(specs.values()), options.backends, None)
    selection = choose(dataclasses.replace(checked.options, paths=tuple(specs)), suite=suite)
    selection = _narrowed(selection, [case for case in selection.selected if _key(case) in wanted])
    checked = dataclasses.replace(checked, options=dataclasses.replace(checked.options, select=tuple(c.id for c in selection.selected)))
    if not selection.selected:
        return ExitCode.NOTHING
    prepared = prepare(checked, selection)

    def opened(options: RunOptions, run: "RunFolder") -> Listener:
        temporary = folder / f".{PLACE}"
        temporary.write_text(json.dumps({"folder": str(run.path)}), "utf-8")
        temporary.rename(folder / PLACE)
        return table.of_run(options, run)

    return run_prepared(prepared, opened)


def _key(case: Case) -> tuple[Path, str]:
    return Path(case.spec).absolute(), case.id.removeprefix(f"{case.area}/") if case.area else case.id


def _narrowed(selection: Selection, cases: Sequence[Case]) -> Selection:
    return dataclasses.replace(selection, selected=list(cases), whole=list(cases), not_requested=0)


def _shown(root: Path) -> Path:
    try:
        return root.relative_to(Path.cwd())
    except ValueError:
        return root


if __name__ == "__main__":
    # pytest reads the results: when it ends, this process ends too
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    with guarded():
        code = answered(lambda: main(Path(sys.argv[1])), ())
    sys.exit(code)

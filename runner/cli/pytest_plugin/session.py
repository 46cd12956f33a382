"""The hooks of a session of pytest with ``--conformance``.

Without pytest-xdist, this process starts the run with its first case. With it, the controller starts one run when the first worker has
collected, and each worker reads the results of its cases from the journal of that run.
"""

import shlex
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from runner.cli.parser import parse
from runner.cli.pytest_plugin.items import CaseItem, SpecCollector
from runner.cli.pytest_plugin.library import Library, Roots
from runner.cli.pytest_plugin.session_run import SessionRun
from runner.core.options import RunOptions
from runner.core.results import CaseResult
from runner.report import one_line

FOLDER = "conformance_folder"
"""The key under which the controller of pytest-xdist tells its workers the folder of the session."""

_UNFIT = ("paths", "resume", "shard", "profile", "repeat")
"""Options of ``run`` that select or compare whole runs: pytest selects, and reports each case once."""


class XdistNode(Protocol):
    """A worker of pytest-xdist, as its controller sees it."""

    workerinput: dict[str, str]


class Session:
    """The plugin of one session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.options = run_options(config)
        named = tuple((config.rootpath / name).absolute() for name in config.getini("conformance_specs"))
        self.roots = Roots(config.rootpath, named)
        self.library = Library(self.options, self.roots)
        given = getattr(config, "workerinput", {}).get(FOLDER)
        self._is_worker = given is not None
        self._folder = Path(given) if given is not None else Path(tempfile.mkdtemp(prefix="conformance-"))
        self.run = SessionRun(self._folder, config.rootpath)
        self._left_out: list[str] = []
        self._has_cases = False

    def pytest_collection(self, session: pytest.Session) -> None:
        """Read all specs of the session at once."""
        arguments = [argument.partition("::")[0] for argument in self._config.args]
        self.library.read_below([(self._config.invocation_params.dir / path).absolute() for path in arguments])

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect a spec file."""
        spec = self.roots.of(file_path)
        return None if spec is None else SpecCollector.of(parent, spec=spec, session=self)

    def result_of(self, item: CaseItem) -> CaseResult:
        """Return the result of a case, once the run has it; start the run with the first case."""
        if not self._is_worker and not self.run.is_started:
            self._start([one.nodeid for one in item.session.items if isinstance(one, CaseItem)])
        return self.run.result(item.case_id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: XdistNode) -> None:
        """Tell a worker of pytest-xdist the folder of the session."""
        node.workerinput[FOLDER] = str(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: XdistNode, ids: Sequence[str]) -> None:
        """Start the run, in the controller, when the first worker knows what is selected: all workers collect the same."""
        if not self.run.is_started:
            self._start(ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a report what only the run knows: the time of the case, and its output."""
        report = yield
        if isinstance(item, CaseItem) and call.when == "call":
            item.complete(report)
        return report

    def pytest_sessionfinish(self) -> None:
        """End a run that goes on, after -x or Ctrl-C."""
        if not self._is_worker:
            self.run.end()

    def pytest_unconfigure(self) -> None:
        """Remove the folder of the session; the folder of the run stays in ``reports/``."""
        if not self._is_worker:
            self.run.end()
            shutil.rmtree(self._folder, ignore_errors=True)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the cases that -k, -m and --lf leave out."""
        self._left_out += [item.nodeid for item in items if isinstance(item, CaseItem)]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember whether a case is selected."""
        self._has_cases = any(isinstance(item, CaseItem) for item in session.items)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the folder of the run, and say why no case was selected."""
        if not self._has_cases:
            for line in why_nothing(self._config.getoption("keyword"), self._left_out):
                terminalreporter.write_line(line)
        if (folder := self.run.folder) is not None:
            terminalreporter.write_line(f"torch-conformance: the run is in {folder}")

    def _start(self, node_ids: Sequence[str]) -> None:
        self.run.start(self.options_text, [self._named(node_id) for node_id in node_ids if "::" in node_id])

    @property
    def options_text(self) -> str:
        """The options of ``run``, as they were given."""
        return f"{self._config.getini('conformance_run')} {self._config.getoption('--conformance-run')}".strip()

    def _named(self, node_id: str) -> tuple[str, str, str]:
        """Return file, root and name of a case; empty for an item that is none."""
        file, _, name = node_id.partition("::")
        spec = self.roots.of((self._config.rootpath / file).absolute())
        return (str(spec.path), str(spec.root), name) if spec is not None else ("", "", "")


def why_nothing(keyword: str, left_out: Sequence[str]) -> Iterator[str]:
    """Yield what to type where a keyword matches no case; ``left_out`` are the ids of the items that it leaves out."""
    if not keyword or not left_out:
        return
    matches = "-k matches words of ids, files, tags and backends, not the Python of a spec"
    yield f"torch-conformance: none of {len(left_out)} cases matches -k '{one_line(keyword)}'; {matches}"
    yield f"  an id is, for example, {one_line(left_out[0])}"
    yield "  to see all of them: the same command without -k, with --collect-only -q"


def run_options(config: pytest.Config) -> RunOptions:
    """Return the options of the run; raise ``pytest.UsageError`` for those that do not go with pytest."""
    text = f"{config.getini('conformance_run')} {config.getoption('--conformance-run')}"
    try:
        words = shlex.split(text)
        _, options = parse(["run", *words])
        _, usual = parse(["run"])
    except (SystemExit, ValueError) as error:  # argparse has printed what is wrong
        raise pytest.UsageError(f"--conformance-run: not the options of 'torch-conformance run': {text.strip()}") from error
    assert isinstance(options, RunOptions)
    unfit = [name for name in _UNFIT if getattr(options, name) != getattr(usual, name)]
    if unfit:
        word = "a PATH" if unfit[0] == "paths" else f"--{unfit[0]}"
        raise pytest.UsageError(f"--conformance-run: {word} does not go with pytest, which selects the cases (remove it)")
    return options

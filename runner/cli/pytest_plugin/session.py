"""A session of pytest with ``--conformance``: specs and cases as nodes of pytest, and the hooks.

Without pytest-xdist, this process starts the run with its first case. With it, the controller starts one run when the first worker has
collected, and each worker reads the results of its cases from the journal of that run. All spec files of a session are read at once,
because backends and names are read each time.
"""

import shlex
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from runner.cli.parser import parse
from runner.cli.pytest_plugin.session_run import SessionRun
from runner.core.case import Case
from runner.core.diagnostics import Diagnostic, UsageError, errors, shown_path
from runner.core.options import RunOptions
from runner.core.outcomes import JUnitTag, Outcome
from runner.core.results import CaseResult
from runner.language.load import inspect_specs
from runner.language.read.files import DefaultsReader, SpecPath, discover, is_spec_file
from runner.plan.selection import requested, select, without_benches
from runner.report import one_line, plain, verdict_text
from runner.run.watching import files_of

if TYPE_CHECKING:
    from _pytest._code.code import TracebackStyle

FOLDER = "conformance_folder"
"""The key under which the controller of pytest-xdist tells its workers the folder of the session."""

_UNFIT = ("paths", "resume", "shard", "profile", "repeat")
"""Options of ``run`` that select or compare whole runs: pytest selects, and reports each case once."""


@dataclass(frozen=True, slots=True)
class Roots:
    """From which folder the ids of specs count. It does not depend on the arguments of pytest, so that ids stay the same."""

    rootdir: Path
    named: tuple[Path, ...] = ()
    """The folders of ``conformance_specs``."""

    def of(self, file: Path) -> SpecPath | None:
        """Return a spec file with its root; None for a file that is no spec."""
        if self.named:
            root = next((root for root in self.named if file.is_relative_to(root)), None)
        elif file.is_relative_to(self.rootdir):
            parts = file.relative_to(self.rootdir).parts
            root = self.rootdir / parts[0] if len(parts) > 1 else self.rootdir
        else:
            root = file.parent
        if root is None or not is_spec_file(file, root):
            return None
        return SpecPath(path=file, root=root)


def _name_of(case: Case) -> str:
    """Return the name of a case below its file: its id without the area."""
    return case.id.removeprefix(f"{case.area}/") if case.area else case.id


@dataclass
class Library:
    """The cases and problems of the spec files that were read."""

    options: RunOptions
    roots: Roots
    _arguments: list[Path] = field(default_factory=list)
    _cases: dict[Path, list[Case]] = field(default_factory=dict)
    _problems: dict[Path, list[Diagnostic]] = field(default_factory=dict)

    def read_below(self, paths: Iterable[Path]) -> None:
        """Read the spec files below the arguments of a session."""
        specs: dict[Path, SpecPath] = {}
        self._arguments = list(paths)
        for path in self._arguments:
            try:
                files = [spec.path for spec in discover([path], [])] if path.exists() else []
            except UsageError:
                continue  # pytest collects no spec there
            specs |= {file: spec for file in files if (spec := self.roots.of(file)) is not None}
        self._read([spec for spec in specs.values() if spec.path not in self._cases])

    def cases(self, spec: SpecPath) -> Sequence[Case]:
        """Return the cases of a file that are selected."""
        if spec.path not in self._cases:
            self._read([spec])
        return self._cases[spec.path]

    def problems(self, spec: SpecPath) -> Sequence[Diagnostic]:
        """Return the problems of a file that was read, of its defaults, and of the backends."""
        return self._problems.get(spec.path, [])

    def _read(self, specs: Sequence[SpecPath]) -> None:
        if not specs:
            return
        options = self.options
        inspection = inspect_specs(specs, options.backends)
        suite = inspection.suite
        chosen = select(suite.cases, suite.backends, names=options.backend, globs=options.select, tags=options.tag)
        cases = requested(chosen, suite.cases, paths=self._arguments, globs=options.select, tags=options.tag)
        by_name = {shown_path(spec.path): spec.path for spec in specs}
        self._cases |= {spec.path: [] for spec in specs}
        for case in cases:
            self._cases[by_name[case.spec]].append(case if options.bench else without_benches(case))
        self._sort_problems(errors(inspection.problems), specs)

    def _sort_problems(self, problems: Sequence[Diagnostic], specs: Sequence[SpecPath]) -> None:
        """Give each spec its problems: its own, those of files that it depends on, and those of files that belong to no spec."""
        if not problems:
            return
        defaults = DefaultsReader()
        needs = {spec.path: {shown_path(path) for path in files_of(spec, defaults)} for spec in specs}
        owned = set().union(*needs.values())
        for path, files in needs.items():
            self._problems[path] = [problem for problem in problems if problem.position.file in files or problem.position.file not in owned]


class NotPassedError(Exception):
    """A case did not pass. Carries what a report shows."""

    def __init__(self, result: CaseResult, text: str) -> None:
        super().__init__(text)
        self.result = result
        self.text = text


class SpecCollector(pytest.File):
    """A spec file: its cases are the items."""

    spec: SpecPath
    conformance: "Session"

    @classmethod
    def of(cls, parent: pytest.Collector, *, spec: SpecPath, session: "Session") -> Self:
        """Return the collector of a spec file."""
        node: Self = cls.from_parent(parent, path=spec.path)
        node.spec, node.conformance = spec, session
        return node

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases; an invalid spec is an error of collection with every position."""
        cases = self.conformance.library.cases(self.spec)
        if problems := self.conformance.library.problems(self.spec):
            raise self.CollectError("\n".join(map(str, problems)))
        for case in cases:
            yield CaseItem.of(self, case)


class CaseItem(pytest.Item):
    """A case."""

    case_id: str
    line: int
    conformance: "Session"
    result: CaseResult | None

    @classmethod
    def of(cls, parent: SpecCollector, case: Case) -> Self:
        """Return the item of a case."""
        name = _name_of(case)
        # pytest reads an id that it has stored as name and parameters; one made of parent and name has the brackets in the name
        node: Self = cls.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}")
        node.case_id, node.line, node.conformance, node.result = case.id, case.position.line, parent.conformance, None
        node.extra_keyword_matches.update((case.backend, *case.tags))
        return node

    def reportinfo(self) -> tuple[Any, int, str]:
        """Return the place of the spec."""
        return self.path, self.line - 1, self.name

    def runtest(self) -> None:
        """Wait for the result of the case, and raise what pytest takes for its outcome."""
        result: CaseResult = self.conformance.result_of(self)
        self.result = result
        self.user_properties += [("outcome", result.outcome.label), ("case", one_line(result.case_id))]
        if result.outcome is Outcome.XFAIL:
            pytest.xfail(one_line(result.reason))  # returns under --runxfail: the case is then the failure that it is
        elif result.outcome.junit is JUnitTag.SKIPPED:
            raise pytest.skip.Exception(one_line(result.reason), _use_item_location=True)
        if result.outcome is not Outcome.PASS and not self._is_let(result):
            raise NotPassedError(result, verdict_text(self._repeatable(result), folder=self.conformance.run.folder))

    def _repeatable(self, result: CaseResult) -> CaseResult:
        """Return a result whose command works where the session was started: its run is in the root of pytest."""
        root = self.config.rootpath
        if not result.repro or self.config.invocation_params.dir == root:
            return result
        return replace(result, repro=f"cd {shlex.quote(str(root))} && {result.repro}")

    def _is_let(self, result: CaseResult) -> bool:
        return result.outcome is Outcome.FLAKY and self.conformance.options.lets_flaky_pass

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: "TracebackStyle | None" = None) -> Any:
        """Return the text of a failure, with the line of the first expectation that failed."""
        error = excinfo.value
        if not isinstance(error, NotPassedError):
            return super().repr_failure(excinfo, style) if not isinstance(error, RuntimeError) else str(error)
        result = error.result
        place = result.failed[0].position if result.failed else result.position
        words = one_line(result.reason) or result.outcome.label
        crash = ReprFileLocation(path=place.file, lineno=place.line, message=f"{result.outcome.label}: {words}")
        lines = [f"{result.outcome.label}  {one_line(result.case_id)}\n", *(f"{line}\n" for line in error.text.splitlines())]
        trace = ReprTraceback(reprentries=[ReprEntryNative(lines)], extraline=None, style="native")
        return ReprExceptionInfo(reprtraceback=trace, reprcrash=crash)

    def complete(self, report: pytest.TestReport) -> None:
        """Add the time of the case and its output to a report."""
        if self.result is None:
            return
        report.duration = self.result.seconds
        for name in ("stdout", "stderr"):
            if text := plain(getattr(self.result, name)).strip("\n"):
                report.sections.append((f"Captured {name} of the case", text))


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

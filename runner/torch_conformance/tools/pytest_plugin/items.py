"""A session of pytest with ``--conformance``: specs and cases as nodes of pytest, and the hooks.

The first case starts one run of all cases. All spec files of a session are read at once, because
backends and names are read each time.
"""

import contextlib
import shlex
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from torch_conformance.cli.parser import parse
from torch_conformance.language.load import inspect_specs
from torch_conformance.language.read.spec_files import SpecPath, discover, is_spec_file
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import Diagnostic, UsageError, errors, shown_path
from torch_conformance.model.escaping import one_line, plain
from torch_conformance.model.outcomes import JUnitTag, Outcome
from torch_conformance.model.results import Redacted
from torch_conformance.optional.options import RunOptions
from torch_conformance.plan.selection import requested, select, without_benches
from torch_conformance.report import note_lines, verdict_text
from torch_conformance.tools.pytest_plugin.session_run import SessionRun, name_in_file

if TYPE_CHECKING:
    from _pytest._code.code import TracebackStyle

_NOTE = "Note of the case"

_UNFIT = ("paths", "resume", "shard", "profile", "repeat")
"""Options of ``run`` that select or compare whole runs: pytest selects, and reports each case once.
"""


def spec_of(file: Path, rootdir: Path, roots: Sequence[Path] = ()) -> SpecPath | None:
    """Return a spec file with the root of its id, which does not depend on the arguments of pytest;
    None for any other file.

    ``roots`` are the folders of ``conformance_specs``.
    """
    if roots:
        root = next((root for root in roots if file.is_relative_to(root)), None)
    elif file.is_relative_to(rootdir):
        parts = file.relative_to(rootdir).parts
        root = rootdir / parts[0] if len(parts) > 1 else rootdir
    else:
        root = file.parent
    return SpecPath(path=file, root=root) if root is not None and is_spec_file(file, root) else None


class NotPassedError(Exception):
    """A case did not pass. Carries what a report shows."""

    def __init__(self, result: Redacted, text: str) -> None:
        super().__init__(text)
        self.result = result


class SpecCollector(pytest.File):
    """A spec file: its cases are the items."""

    spec: SpecPath
    conformance: "Session"

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases; an invalid spec is an error of collection with every position."""
        cases = self.conformance.cases(self.spec)
        if problems := self.conformance.problems.get(self.spec.path):
            raise self.CollectError("\n".join(map(str, problems)))
        for case in cases:
            name = name_in_file(case)
            # pytest reads an id that it has stored as name and parameters; one made of parent and
            # name has the brackets in the name
            item: CaseItem = CaseItem.from_parent(self, name=name, nodeid=f"{self.nodeid}::{name}")
            item.case, item.spec, item.conformance = case, self.spec, self.conformance
            item.extra_keyword_matches.update((case.backend, *case.tags))
            yield item


class CaseItem(pytest.Item):
    """A case."""

    case: Case
    spec: SpecPath
    conformance: "Session"
    result: Redacted | None = None

    def reportinfo(self) -> tuple[Any, int, str]:
        """Return the place of the spec."""
        return self.path, self.case.position.line - 1, self.name

    def runtest(self) -> None:
        """Wait for the result of the case, and raise what pytest takes for its outcome."""
        self.result = result = self.conformance.result_of(self)
        self.user_properties += [
            ("outcome", result.outcome.label),
            ("case", one_line(result.case_id)),
        ]
        if result.outcome is Outcome.XFAIL:
            pytest.xfail(
                one_line(result.reason)
            )  # returns under --runxfail: the case is then the failure that it is
        elif result.outcome.junit is JUnitTag.SKIPPED:
            raise pytest.skip.Exception(one_line(result.reason), _use_item_location=True)
        lets_pass = result.outcome is Outcome.FLAKY and self.conformance.options.lets_flaky_pass
        if result.outcome is not Outcome.PASS and not lets_pass:
            root = self.config.rootpath
            if result.repro and self.config.invocation_params.dir != root:
                # its run is in the root of pytest
                result = replace(result, repro=f"cd {shlex.quote(str(root))} && {result.repro}")
            raise NotPassedError(result, verdict_text(result, folder=self.conformance.folder))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: "TracebackStyle | None" = None
    ) -> Any:
        """Return the text of a failure, with the line of the first expectation that failed."""
        error = excinfo.value
        if isinstance(error, RuntimeError):
            return str(error)
        if not isinstance(error, NotPassedError):
            return super().repr_failure(excinfo, style)
        result = error.result
        place = result.failed[0].position if result.failed else result.position
        words = one_line(result.reason) or result.outcome.label
        crash = ReprFileLocation(
            path=place.file, lineno=place.line, message=f"{result.outcome.label}: {words}"
        )
        lines = [
            f"{result.outcome.label}  {one_line(result.case_id)}\n",
            *(f"{line}\n" for line in str(error).splitlines()),
        ]
        trace = ReprTraceback(reprentries=[ReprEntryNative(lines)], extraline=None, style="native")
        return ReprExceptionInfo(reprtraceback=trace, reprcrash=crash)


class Session:
    """The plugin of one session."""

    def __init__(self, config: pytest.Config) -> None:
        if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
            raise pytest.UsageError(
                "--conformance does not go with -n of pytest-xdist: --conformance-run='--jobs "
                "N' runs cases in parallel"
            )
        self._config = config
        text = f"{config.getini('conformance_run')} {config.getoption('--conformance-run')}"
        self._text = text.strip()
        self.options = run_options(self._text)
        self._run: SessionRun | None = None
        self._roots = tuple(
            (config.rootpath / name).absolute() for name in config.getini("conformance_specs")
        )
        self._arguments: list[Path] = []
        self._cases: dict[Path, list[Case]] = {}
        self.problems: dict[Path, list[Diagnostic]] = {}
        """The problems of each spec file that was read, and of defaults and backends."""

    # -- collection --------------------------------------------------------------------------------

    def pytest_collection(self, session: pytest.Session) -> None:
        """Read all specs of the session at once."""
        names = [argument.partition("::")[0] for argument in self._config.args]
        self._arguments = [(self._config.invocation_params.dir / name).absolute() for name in names]
        specs: dict[Path, SpecPath] = {}
        for path in filter(Path.exists, self._arguments):
            with contextlib.suppress(UsageError):  # pytest collects no spec there
                files = [spec.path for spec in discover([path], [])]
                specs |= {file: spec for file in files if (spec := self._spec(file)) is not None}
        self._read(list(specs.values()))

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Collect a spec file."""
        spec = self._spec(file_path)
        if spec is None:
            return None
        node: SpecCollector = SpecCollector.from_parent(parent, path=spec.path)
        node.spec, node.conformance = spec, self
        return node

    def cases(self, spec: SpecPath) -> Sequence[Case]:
        """Return the cases of a file that are selected."""
        if spec.path not in self._cases:
            self._read([spec])
        return self._cases[spec.path]

    def _spec(self, file: Path) -> SpecPath | None:
        return spec_of(file, self._config.rootpath, self._roots)

    def _read(self, specs: Sequence[SpecPath]) -> None:
        if not specs:
            return
        options = self.options
        inspection = inspect_specs(specs, options.backends)
        suite = inspection.suite
        chosen = select(suite.cases, suite.backends, options)
        by_name = {shown_path(spec.path): spec.path for spec in specs}
        self._cases |= {spec.path: [] for spec in specs}
        for case in requested(chosen, suite.cases, options, paths=self._arguments):
            path = by_name[suite.sources.get(case.spec, case.spec)]
            self._cases[path].append(case if options.bench else without_benches(case))
        problems = list(errors(inspection.problems))
        for name, path in by_name.items():  # files of defaults and backends serve all specs
            self.problems[path] = [
                problem
                for problem in problems
                if problem.position.file == name or problem.position.file not in by_name
            ]

    # -- the run and its reports -------------------------------------------------------------------

    def result_of(self, item: CaseItem) -> Redacted:
        """Return the result of a case, once the run has it; start the run with the first case."""
        if self._run is None:
            items = [node for node in item.session.items if isinstance(node, CaseItem)]
            cases = [(str(node.spec.path), str(node.spec.root), node.name) for node in items]
            self._run = SessionRun(self._text, cases, self._config.rootpath)
        return self._run.result(item.case.id)

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before it is open."""
        return None if self._run is None else self._run.folder

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a report what only the run knows: the time of the case, and its output."""
        report = yield
        if isinstance(item, CaseItem) and call.when == "call" and item.result is not None:
            report.duration = item.result.seconds
            for name in ("stdout", "stderr"):
                if text := plain(getattr(item.result, name)).strip("\n"):
                    report.sections.append((f"Captured {name} of the case", text))
            report.sections += [(_NOTE, line) for line in note_lines(item.result)]
        return report

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Name the folder of the run, and the notes of cases that passed, such as a flaky waiver:
        pytest shows no section of them.
        """
        notes = (
            text
            for report in terminalreporter.getreports("passed")
            for title, text in report.sections
            if title == _NOTE
        )
        for line in dict.fromkeys(notes):
            terminalreporter.write_line(line)
        if self.folder is not None:
            terminalreporter.write_line(f"torch-conformance: the run is in {self.folder}")

    def pytest_unconfigure(self) -> None:
        """End a run that goes on, after -x or Ctrl-C. Its folder in ``reports/`` stays."""
        if self._run is not None:
            self._run.end()


def run_options(text: str) -> RunOptions:
    """Return the options of the run; raise ``pytest.UsageError`` for those that do not go with
    pytest.
    """
    try:
        _, options = parse(["run", *shlex.split(text)])
    except (SystemExit, ValueError) as error:  # argparse has printed what is wrong
        raise pytest.UsageError(
            f"--conformance-run: not the options of 'torch-conformance run': {text}"
        ) from error
    assert isinstance(options, RunOptions)
    _, usual = parse(["run"])
    for name in _UNFIT:
        if getattr(options, name) != getattr(usual, name):
            word = "a PATH" if name == "paths" else f"--{name}"
            raise pytest.UsageError(
                f"--conformance-run: {word} does not go with pytest, which selects the cases "
                "(remove it)"
            )
    return options

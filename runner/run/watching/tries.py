"""One try of a watch: load the specs that changed, select their cases, run them as ``run`` does."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from runner.core.diagnostics import Diagnostic, InvalidSpecs
from runner.core.events import Listener, RunEnded, RunEvent
from runner.core.exit_codes import ExitCode
from runner.core.options import RunOptions
from runner.core.results import CaseResult
from runner.execute.executors import EXECUTORS
from runner.execute.local.kept_zygotes import ZygoteStore
from runner.execute.routing import Makers
from runner.language.load import load_specs
from runner.language.read.files import DefaultsReader, SpecPath, discover
from runner.record.run_folder import RunFolder
from runner.run.controller import OpenReporters, run_prepared
from runner.run.preparation import Checked, Selection, check, choose, prepare
from runner.run.watching.sources import files_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a try runs."""

    files: frozenset[str] | None = None
    """The files that changed: specs that depend on one of them are run. None for all specs."""
    cases: tuple[str, ...] = ()
    """Only these cases; empty for all of the specs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of a try."""

    code: ExitCode
    results: tuple[CaseResult, ...] = ()
    specs: tuple[str, ...] = ()
    """The names of the loaded specs in messages."""
    cases: tuple[str, ...] = ()
    """The ids of all cases of these specs."""
    folder: Path | None = None


class Tries:
    """Runs the cases of changed specs. ``makers`` are the executors of its runs."""

    def __init__(self, options: RunOptions, open_reporters: OpenReporters, makers: Makers) -> None:
        self._options = options
        self._open_reporters = open_reporters
        self._makers = makers

    def files(self) -> set[Path]:
        """Return the files besides the specs that the outcome of a spec depends on; raise ``UsageError`` for a path without specs."""
        problems: list[Diagnostic] = []
        defaults = DefaultsReader()
        found = {path.absolute() for path in (*self._options.backends, *self._options.waivers)}
        for spec in discover(self._options.paths, problems):
            found |= files_of(spec, defaults)
        return found

    def run(self, wanted: Wanted) -> Tried:
        """Run a try; raise ``InvalidSpecs`` and ``UsageError`` as ``run`` does."""
        specs = self._specs(wanted)
        if not specs:
            return Tried(code=ExitCode.NOTHING)
        suite = load_specs(specs, self._options.backends, None)
        checked = check(self._options)
        selection = choose(checked.options, suite=suite)
        if wanted.files is not None or wanted.cases:
            checked, selection = _narrowed(checked, selection, wanted.cases)
        ids = tuple(case.id for case in suite.cases)
        names = tuple(sorted({case.spec for case in suite.cases}))
        if not selection.selected:
            return Tried(code=ExitCode.NOTHING, specs=names, cases=ids)
        prepared = replace(prepare(checked, selection), executors=self._makers)
        recorder = _Recorder(self._open_reporters)
        code = run_prepared(prepared, recorder.opened)
        return Tried(code=code, results=recorder.results, specs=names, cases=ids, folder=recorder.folder)

    def _specs(self, wanted: Wanted) -> list[SpecPath]:
        problems: list[Diagnostic] = []
        specs = discover(self._options.paths, problems)
        if problems:
            raise InvalidSpecs(problems)
        everywhere = {str(path.absolute()) for path in (*self._options.backends, *self._options.waivers)}
        if wanted.files is None or wanted.files & everywhere:
            return specs
        defaults = DefaultsReader()
        return [spec for spec in specs if wanted.files & set(map(str, files_of(spec, defaults)))]


def _narrowed(checked: Checked, selection: Selection, cases: Collection[str]) -> tuple[Checked, Selection]:
    """Return a selection of fewer cases, and options that name exactly these: the journal records what was selected."""
    selected = [case for case in selection.selected if not cases or case.id in cases]
    ids = tuple(case.id for case in selected)
    options = replace(checked.options, select=ids, backend=(), tag=(), shard=None)
    return replace(checked, options=options), replace(selection, selected=selected, whole=selected, not_requested=0)


def makers_of(store: ZygoteStore) -> Makers:
    """Return the executors of runs whose zygotes a store keeps."""
    return {**EXECUTORS, "local": store.executor}


class _Recorder:
    """Opens the listeners of a run, and takes its folder and its results from the events."""

    def __init__(self, open_reporters: OpenReporters) -> None:
        self._open_reporters = open_reporters
        self._listener: Listener | None = None
        self.results: tuple[CaseResult, ...] = ()
        self.folder: Path | None = None

    def opened(self, options: RunOptions, folder: RunFolder) -> Listener:
        self.folder = folder.path
        self._listener = self._open_reporters(options, folder)
        return self

    def on_event(self, event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            self.results = event.results
        if self._listener is not None:
            self._listener.on_event(event)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

"""The cases of spec files, for pytest: all files of a session are read at once, because backends and names are read each time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import Diagnostic, UsageError, errors, shown_path
from runner.core.options import RunOptions
from runner.language.load import inspect_placed
from runner.language.read.files import DefaultsReader, SpecPath, discover, is_spec_file
from runner.plan.selection import requested, select, without_benches
from runner.run.watching.sources import files_of


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


def name_of(case: Case) -> str:
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
        found: dict[Path, SpecPath] = {}
        self._arguments = list(paths)
        for path in self._arguments:
            try:
                files = [spec.path for spec in discover([path], [])] if path.exists() else []
            except UsageError:
                continue  # pytest collects no spec there
            found |= {file: spec for file in files if (spec := self.roots.of(file)) is not None}
        self._read([spec for spec in found.values() if spec.path not in self._cases])

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
        found = inspect_placed(specs, options.backends)
        suite = found.suite
        chosen = select(suite.cases, suite.backends, names=options.backend, globs=options.select, tags=options.tag)
        wanted = requested(chosen, suite.cases, paths=self._arguments, globs=options.select, tags=options.tag)
        by_name = {shown_path(spec.path): spec.path for spec in specs}
        self._cases |= {spec.path: [] for spec in specs}
        for case in wanted:
            self._cases[by_name[case.spec]].append(case if options.bench else without_benches(case))
        self._sort_problems(errors(found.problems), specs)

    def _sort_problems(self, problems: Sequence[Diagnostic], specs: Sequence[SpecPath]) -> None:
        """Give each spec its problems: its own, those of files that it depends on, and those of files that belong to no spec."""
        if not problems:
            return
        defaults = DefaultsReader()
        needs = {spec.path: {shown_path(path) for path in files_of(spec, defaults)} for spec in specs}
        owned = set().union(*needs.values())
        for path, files in needs.items():
            self._problems[path] = [one for one in problems if one.position.file in files or one.position.file not in owned]

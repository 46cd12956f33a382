"""Writes the report: first into a new folder, which then replaces the former one, and last the page; and the listener that does so."""

import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runner.core.diagnostics import shown_path
from runner.core.escaping import one_line
from runner.core.events import RunAbandoned, RunEnded, RunEvent
from runner.core.header import RunFooter, RunHeader
from runner.core.results import CaseResult
from runner.record.run_folder import LATEST, REPORTS
from runner.report.html import script, shown
from runner.report.html.cases import Details, files_of, sources_of
from runner.report.html.overview import columns_of, facts_of, head_of, index_of, intervals_of, totals_of
from runner.report.setup import ReportSetup
from runner.system import data_dirs, output
from runner.system.output import naming

PAGE, PARTS = "index.html", "report"
"""The page, and the folder of what it loads, in the folder of a run."""

_STYLES, _PROGRAMS = "report/*.css", "report/app/*.js"
_SOURCES_OF_CHUNK = 40
_NAMED = 50
"""How many cases the page names where no script runs."""


class HtmlReporter:
    """Writes the page; the terminal names it. The run has ended by then: a page that cannot be written is a warning."""

    def __init__(self, setup: ReportSetup) -> None:
        self._folder = setup.folder

    def on_event(self, event: RunEvent) -> None:
        """Write the page of a run that ended; remove that of a run whose records cannot be believed."""
        match event:
            case RunEnded():
                self._write(event)
            case RunAbandoned():
                remove_page(self._folder.path)

    def close(self) -> None:
        """Release nothing: every file is written at once."""

    def _write(self, ended: RunEnded) -> None:
        try:
            write_page(self._folder.path, ended.header, ended.results, ended.footer)
            self._folder.page = shown_path((REPORTS / LATEST if self._folder.is_latest else self._folder.path) / PAGE)
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            self._warn(f"cannot write{where}: {error.strerror or error}")
        except Exception as error:
            # the journal is complete and says how the run ended: a defect of the page must not change the exit code
            self._warn(f"{type(error).__name__}: {error}; this is a bug of torch-conformance, please report it")

    def _warn(self, why: str) -> None:
        """Remove a page of an earlier part of the run, which has other results."""
        remove_page(self._folder.path)
        output.note(f"warning: the HTML report was not written: {one_line(why)}")


def write_page(folder: Path, header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> Path:
    """Write the report of a run into its folder; return the page. Raises ``OSError``; a former report then stays."""
    parts = folder / f".{PARTS}-{secrets.token_hex(4)}"
    with naming(folder / PARTS):
        try:
            parts.mkdir()
            _write_parts(parts, folder, header, results, footer)
            _replace_folder(folder / PARTS, parts)
        finally:
            shutil.rmtree(parts, ignore_errors=True)
    with naming(folder / PAGE):
        _replace_file(folder / PAGE, _page(header, results, footer).encode("utf-8"))
    return folder / PAGE


def remove_page(folder: Path) -> None:
    """Remove the page of a run that must not be believed."""
    with suppress(OSError):
        (folder / PAGE).unlink()


def _write_parts(parts: Path, folder: Path, header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> None:
    details = Details(folder, results)
    for number, chunk in enumerate(details.chunks()):
        _write(parts / f"cases-{number}.js", chunk)
    files = files_of(results)
    groups = [files[at : at + _SOURCES_OF_CHUNK] for at in range(0, len(files), _SOURCES_OF_CHUNK)]
    for number, group in enumerate(groups):
        _write(parts / f"sources-{number}.js", script(f"sources-{number}", sources_of(group, header.specs)))
    _write(parts / "run.js", script("run", {**facts_of(header, results, footer), "timeline": columns_of(intervals_of(results))}))
    places = {shown(file): number for number, group in enumerate(groups) for file in group}
    index = {**index_of(results, details.first), "head": head_of(header, results, footer), "sources": places}
    _write(parts / "index.js", script("index", index))
    _write(parts / "app.css", _joined(_STYLES))
    _write(parts / "app.js", _joined(_PROGRAMS))


def _joined(pattern: str) -> bytes:
    """Return the files of the program, in the order of their names."""
    return b"\n".join(path.read_bytes() for path in sorted(data_dirs.folder("templates").glob(pattern)))


def _page(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> str:
    import jinja2  # ``--help`` needs none

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dirs.folder("templates") / "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    failures = [result for result in results if result.outcome.is_failure]
    return environment.get_template("index.html.j2").render(
        head=head_of(header, results, footer),
        totals=[(outcome.label, count) for outcome, count in totals_of(results).items() if count],
        failures=[(result.outcome.label, shown(result.case_id), shown(result.reason)) for result in failures[:_NAMED]],
        more=max(len(failures) - _NAMED, 0),
        parts=PARTS,
    )


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)


def _replace_folder(path: Path, new: Path) -> None:
    """Put a folder in the place of another one, or of a link: a worker may have made one, and it is not followed."""
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    new.rename(path)


def _replace_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        _write(temporary, data)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

"""Writes the report: first into a new folder, which then replaces the former one, and last the page; and the listener that does so."""

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runner.machine import cache_dirs, output
from runner.machine.output import naming
from runner.model.diagnostics import shown_path
from runner.model.escaping import one_line
from runner.model.events import Listener, RunAbandoned, RunEnded, RunEvent
from runner.model.header import RunFooter, RunHeader
from runner.model.results import CaseResult
from runner.record.run_folder import LATEST, REPORTS
from runner.report import ReportSetup, replace
from runner.report.page_data import chunks, head_of, index_of, run_facts, script, shown, sources_of, timeline_of, totals_of

PAGE, PARTS = "index.html", "report"
"""The page, and the folder of what it loads, in the folder of a run."""

_SOURCES_OF_CHUNK = 40
_NAMED = 50
"""How many cases the page names where no script runs."""


@dataclass
class HtmlReporter(Listener):
    """Writes the page; the terminal names it. The run has ended by then: a page that cannot be written is a warning."""

    setup: ReportSetup

    def on_event(self, event: RunEvent) -> None:
        """Write the page of a run that ended; remove that of a run whose records cannot be believed."""
        folder = self.setup.folder
        match event:
            case RunEnded():
                try:
                    write_page(folder.path, event.header, event.results, event.footer)
                    folder.page = shown_path((REPORTS / LATEST if folder.is_latest else folder.path) / PAGE)
                except OSError as error:
                    why = f"cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror or error}"
                except Exception as error:  # templates raise any class, and a page decides no exit code
                    why = f"{type(error).__name__}: {error}; this is a bug of torch-conformance, please report it"
                else:
                    return
                output.note(f"warning: the HTML report was not written: {one_line(why)}")
            case RunAbandoned():
                pass
            case _:
                return
        # a page of an earlier part of the run has other results
        with suppress(OSError):
            (folder.path / PAGE).unlink()


def write_page(folder: Path, header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> Path:
    """Write the report of a run into its folder; return the page. Raises ``OSError``; a former report then stays."""
    with naming(folder / PARTS):
        new = folder / f".{PARTS}-{secrets.token_hex(4)}"
        try:
            new.mkdir()
            for name, data in _parts(folder, header, results, footer):
                with (new / name).open("xb") as stream:
                    stream.write(data)
            _remove(folder / PARTS)
            new.rename(folder / PARTS)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    page = folder / PAGE
    if page.is_symlink() or not page.is_file():
        _remove(page)
    replace(page, _page(header, results, footer).encode("utf-8"))
    return page


def _remove(path: Path) -> None:
    """Remove what is there; a worker may have made a link in its place, which is not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _parts(folder: Path, header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file that the page loads."""
    firsts = []
    for number, (first, chunk) in enumerate(chunks(folder, results)):
        firsts.append(first)
        yield f"cases-{number}.js", chunk
    # the files that cases point to: their specs, and where their verdicts and waivers stand
    files = dict.fromkeys(
        file
        for result in results
        for file in (result.spec, *(v.position.file for v in result.verdicts), *(w.position.file for w in result.waivers))
    )
    places: dict[str, int] = {}
    for number, at in enumerate(range(0, len(files), _SOURCES_OF_CHUNK)):
        sources = sources_of(list(files)[at : at + _SOURCES_OF_CHUNK], header.specs)
        places |= dict.fromkeys(sources, number)
        yield f"sources-{number}.js", script(f"sources-{number}", sources)
    yield "run.js", script("run", {**run_facts(header, results, footer), "timeline": timeline_of(results)})
    yield "index.js", script("index", {**index_of(results, firsts), "head": head_of(header, results, footer), "sources": places})
    for name, pattern in (("app.css", "report/*.css"), ("app.js", "report/app/*.js")):
        yield name, b"\n".join(path.read_bytes() for path in sorted(cache_dirs.folder("templates").glob(pattern)))


def _page(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> str:
    import jinja2  # ``--help`` needs none

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(cache_dirs.folder("templates") / "report"),
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

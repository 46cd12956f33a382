"""The HTML report: one page, with an index and chunks of cases in files next to it.

It works from a file, without a network.

Everything from a run is hostile text. It travels as JSON within script files, and the page's own
script puts it into the document as text only, never as markup. The template has the few words that
are there without a script; Jinja2 escapes them. A page from a file may not fetch files, but it may
load scripts; each calls ``conformance(NAME, TEXT)`` with JSON.

The files of a case are a worker's: only those whose digest the journal has are read, and every
value is checked for its type and cut to a size. Within a chunk, strings are numbers of one table,
the empty string first, and values that are empty are left out. A column of the index holds numbers
of small tables, so 150,000 cases take some MB.
"""

import functools
import hashlib
import heapq
import itertools
import json
import math
import os
import re
import secrets
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from torch_conformance.machine import cache_dirs, output
from torch_conformance.machine.output import naming
from torch_conformance.machine.redaction import redacted
from torch_conformance.machine.scratch import open_untrusted, remove
from torch_conformance.model.case_facts import TALLIED
from torch_conformance.model.diagnostics import shown_path
from torch_conformance.model.escaping import one_line, plain
from torch_conformance.model.events import RunAbandoned, RunEnded, RunEvent
from torch_conformance.model.expectation import Status
from torch_conformance.model.header import ReportedRun
from torch_conformance.model.outcomes import PASSED, Outcome
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import NOT_MEASURED, Attempt, Redacted
from torch_conformance.record.case_files import OBSERVATION, SCRIPT, EvidenceAltered, RecordedFiles
from torch_conformance.record.conclusion import profile_statement
from torch_conformance.record.run_folder import LATEST, REPORTS
from torch_conformance.report import (
    FileReport,
    flaky_words,
    node_lines,
    note_lines,
    replace,
)

PAGE, PARTS = "index.html", "report"
"""The page, and the folder of what it loads, in the folder of a run."""

_SOURCES_OF_CHUNK = 40
_NAMED = 50
"""How many cases the page names where no script runs."""

_MOST_CASES, _CHUNK = 256, 2_000_000
"""Cases of a chunk, and bytes after which it ends."""

_OUTPUT, _OUTPUT_OF_PASS, _DETAIL = 24_000, 2_000, 40_000
"""Characters of what a worker printed, and of other texts of a verdict."""

_REASON, _WORD = 240, 300
"""Characters of a reason in a list (the page of the case has all of it), and of a name that a
worker wrote.
"""

_MOST_NUMBERS, _MOST_TUNINGS, _MOST_BINS, _MOST_CELLS = 24, 40, 128, 1024

CODE_OF_CASE, PIECE, _MOST_CODE = 200_000, 60_000, 4_000_000
"""Characters of generated code and graphs of a case, of one piece, and of all cases that did not
pass; the rest are links to files.
"""

_MOST_PASSED, _MOST_FAILED = 2_000, 5_000
"""Cases that passed, and others, of which the measured facts are read.

A failed case comes before one that passed.
"""

_LARGEST_SPEC = 1 << 20
"""Bytes of a YAML file that the page shows."""

_SLACK = 0.002
"""Seconds that two intervals of one lane may overlap: the journal's moments have milliseconds."""

_STATUSES = tuple(status.value for status in Status)
_ROW = re.compile(r">\s*(?P<number>[0-9]{1,8}) \| ?(?P<text>.*)")
_CODE = re.compile(r"(?:code|graph)-[0-9]{1,4}(?:-[a-z_]{1,20})?-[0-9]{1,4}\.txt")
_FIGURES = (
    "max_error max_ulp eager_max_error eager_max_ulp numel outside nonfinite runs whole_error"
).split()
_OF_WORST = ("index", "value", "eager_value", "reference_value")

_URGENT = (
    "CRASH FAIL FELL_BACK ERROR TIMEOUT OFFLINE_FAIL XPASS FLAKY NOT_RUN XFAIL UNAVAILABLE "
    "OFFLINE_PASS PASS"
)
_FIRST = tuple(Outcome[name] for name in _URGENT.split())
"""The order of the page: what needs a person first."""


# -- files -----------------------------------------------------------------------------------------


class HtmlReporter(FileReport):
    """Writes the page; the terminal names it.

    The run has ended by then: a page that cannot be written is a warning.
    """

    def files(self) -> Iterable[Path]:
        """Return the page in the folder of the run."""
        return (self.setup.folder.path / PAGE,)

    def write(self, path: Path, run: ReportedRun) -> None:
        """Write the page, and what it loads."""
        write_page(path.parent, run)

    def on_event(self, event: RunEvent) -> None:
        """Write the page of a run that ended; remove that of a run whose records cannot be
        believed.
        """
        folder = self.setup.folder
        if not isinstance(event, RunEnded | RunAbandoned):
            return
        if isinstance(event, RunEnded):
            try:
                write_page(folder.path, event)
                folder.page = shown_path(
                    (REPORTS / LATEST if folder.is_latest else folder.path) / PAGE
                )
            except OSError as error:
                why = (
                    f"cannot write{f' {error.filename}' if error.filename else ''}: "
                    f"{error.strerror or error}"
                )
            except Exception as error:  # templates raise any class, and a page decides no exit code
                why = (
                    f"{type(error).__name__}: {error}; this is a bug of torch-conformance, please "
                    "report it"
                )
            else:
                return
            output.note(f"warning: the HTML report was not written: {one_line(why)}")
        # a page of an earlier part of the run has other results
        with suppress(OSError):
            (folder.path / PAGE).unlink()


def write_page(folder: Path, run: ReportedRun) -> Path:
    """Write the report of a run into its folder; return the page.

    Raises ``OSError``; a former report then stays.
    """
    with naming(folder / PARTS):
        new = folder / f".{PARTS}-{secrets.token_hex(4)}"
        try:
            new.mkdir()
            for name, data in _parts(folder, run):
                with (new / name).open("xb") as stream:
                    stream.write(data)
            remove(folder / PARTS)
            new.rename(folder / PARTS)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    page = folder / PAGE
    if page.is_symlink() or not page.is_file():
        remove(page)
    failures = [result for result in run.results if result.outcome.is_failure]
    words = {
        "head": (head := head_of(run)),
        "totals": [(label, count) for label, count in head["totals"].items() if count],
        "failures": [
            (result.outcome.label, shown(result.case_id), shown(result.reason))
            for result in failures[:_NAMED]
        ],
        "more": max(len(failures) - _NAMED, 0),
        "parts": PARTS,
    }
    replace(page, rendered("report/index.html.j2", words).encode("utf-8"))
    return page


def rendered(template: str, words: Mapping[str, object]) -> str:
    """Return a page of a template, which escapes everything; an undefined name in it is an
    error.
    """
    import jinja2  # ``--help`` needs none

    loader = jinja2.FileSystemLoader(cache_dirs.folder("templates"))
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"line": lambda text: one_line(str(text), 2_000), "plain": plain}
    return environment.get_template(template).render(words)


def _parts(folder: Path, run: ReportedRun) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file that the page loads."""
    results = run.results
    firsts = []
    for number, (first, chunk) in enumerate(chunks(folder, results)):
        firsts.append(first)
        yield f"cases-{number}.js", chunk
    # the files that cases point to: their specs, and those of their verdicts and waivers
    files = dict.fromkeys(
        file
        for result in results
        for file in (
            result.spec,
            *(v.position.file for v in result.verdicts),
            *(w.position.file for w in result.waivers),
        )
    )
    places: dict[str, int] = {}
    for number, at in enumerate(range(0, len(files), _SOURCES_OF_CHUNK)):
        sources = sources_of(list(files)[at : at + _SOURCES_OF_CHUNK], run.header.specs)
        places |= dict.fromkeys(sources, number)
        yield f"sources-{number}.js", script(f"sources-{number}", sources)
    head = head_of(run)
    if head["has_support"]:
        yield "support.js", script("support", support_facts(run))
    yield "run.js", script("run", {**run_facts(run), "timeline": timeline_of(results)})
    yield (
        "index.js",
        script("index", {**index_of(results, firsts), "head": head, "sources": places}),
    )
    for name, pattern in (("app.css", "report/*.css"), ("app.js", "report/app/*.js")):
        yield (
            name,
            b"\n".join(
                path.read_bytes() for path in sorted(cache_dirs.folder("templates").glob(pattern))
            ),
        )


_ESCAPES = str.maketrans(
    {"\\": "\\\\", "'": "\\x27", "<": "\\x3c", ">": "\\x3e", "&": "\\x26", "\x7f": "\\x7f"}
)
"""Of ASCII text within a JavaScript string in single quotes."""


def script(name: str, value: object) -> bytes:
    """Return a script that hands a value to the page: ASCII, one line, with nothing that could end
    a script or begin markup.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"conformance('{name}','{text.translate(_ESCAPES)}');\n".encode("ascii")


shown = functools.lru_cache(maxsize=1 << 16)(plain)
"""Returns hostile text with visible escapes for what hides or reorders characters."""


def _shown(value: object) -> Json:
    """Return JSON whose strings have visible escapes."""
    match value:
        case str():
            return shown(value)
        case list() | tuple():
            return [_shown(item) for item in value]
        case dict():
            return {shown(str(name)): _shown(item) for name, item in value.items()}
    return value


# -- cases -----------------------------------------------------------------------------------------


def chunks(folder: Path, results: Sequence[Redacted]) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first case of each chunk, and its script, in the order of the
    cases.
    """
    facts_left = {True: _MOST_PASSED, False: _MOST_FAILED}
    code_left = _MOST_CODE
    first = number = 0
    while first < len(results):
        strings: defaultdict[str, int] = defaultdict(int, {"": 0})
        strings.default_factory = strings.__len__
        index_of = strings.__getitem__
        cases, size = list[Json](), 0
        for result in results[first : first + _MOST_CASES]:
            passed = result.outcome in PASSED
            names = list(
                dict.fromkeys(
                    name for name in (*result.code, *result.evidence) if _CODE.fullmatch(name)
                )
            )
            code: list[Json] = [{"name": name} for name in names]
            if not passed:
                code = pieces_of(folder, result, names, min(code_left, CODE_OF_CASE))
            of_code = sum(len(piece.get("text", "")) for piece in code)
            code_left -= of_code
            facts_left[passed] -= 1
            observation: Json = None
            if facts_left[passed] >= 0 and result.folder and OBSERVATION in result.evidence:
                with suppress(OSError, ValueError, RecursionError, EvidenceAltered):
                    observation = RecordedFiles(
                        folder / result.folder, result.evidence
                    ).observation()
            case: dict[str, Json] = {
                **_attempt(result, index_of),
                "at": [
                    index_of(result.position.file),
                    result.position.line,
                    result.position.column,
                ],
                "claim": index_of(result.summary),
                "phases": [
                    [index_of(name), round(seconds, 4)] for name, seconds in result.phases.items()
                ],
                # the id is part of the command: the page puts it there
                "repro": [
                    *map(
                        index_of,
                        result.repro.split(result.case_id)
                        if result.repro.count(result.case_id) == 1
                        else [result.repro],
                    )
                ],
                **{
                    name: index_of(getattr(result, name))
                    for name in ("phase", "target", "level", "digest")
                },
                **{
                    name: [*map(index_of, getattr(result, name))]
                    for name in ("options", "covers", "requires", "attachments")
                },
                "notes": [
                    *map(
                        index_of,
                        [
                            *(f"doctor: {text}" for text in result.warnings),
                            *note_lines(result),
                            *node_lines(result),
                        ],
                    )
                ],
                "script": index_of(SCRIPT)
                if result.folder and os.path.isfile(folder / result.folder / SCRIPT)
                else 0,
                "files": [index_of(name) for name in result.evidence if not _CODE.fullmatch(name)],
                "benches": result.benches_left_out,
                "waivers": [
                    [
                        index_of(f"{waiver.effect.value}{', flaky' * waiver.flaky}"),
                        index_of(waiver.position.file),
                        waiver.position.line,
                    ]
                    + [
                        index_of(text)
                        for text in (waiver.reason, waiver.issue, waiver.until, waiver.cases)
                    ]
                    for waiver in result.waivers
                ],
                "timings": [
                    [
                        index_of(entry.name),
                        index_of(entry.form),
                        entry.median_ms,
                        entry.least_ms,
                        entry.most_ms,
                        entry.count,
                    ]
                    for entry in result.timings
                ],
                "attempts": [_attempt(attempt, index_of) for attempt in result.attempts],
                "code": code,
                **facts_of(observation),
            }
            cases.append({name: value for name, value in case.items() if value not in ([], 0)})
            size += (
                of_code
                + len(result.stdout)
                + len(result.stderr)
                + sum(len(verdict.detail) for verdict in result.verdicts)
            )
            if size > _CHUNK:
                break
        yield first, script(f"cases-{number}", {"strings": [*map(shown, strings)], "cases": cases})
        first += len(cases)
        number += 1


def _attempt(attempt: Attempt, index_of: Callable[[str], int]) -> dict[str, Json]:
    """Return what a case has, and each of its attempts; ``index_of`` returns the number of a
    string.
    """
    most = _OUTPUT_OF_PASS if attempt.outcome in PASSED else _OUTPUT
    printed = {
        name: text
        if len(text) <= most
        else f"... {len(text) - most} characters before this are left out ...\n{text[-most:]}"
        for name, text in (("stdout", attempt.stdout), ("stderr", attempt.stderr))
    }
    return {
        "outcome": attempt.outcome.label,
        "type": index_of(attempt.failure_type),
        "seconds": attempt.seconds,
        **{
            name: index_of(getattr(attempt, name))
            for name in ("reason", "isolation", "folder", "begun")
        },
        "worker": attempt.worker,
        "gpus": list(attempt.gpus),
        "verdicts": [
            [index_of(verdict.kind), _STATUSES.index(verdict.status.value)]
            + [index_of(verdict.position.file), verdict.position.line, verdict.position.column]
            + [
                index_of(text)
                for text in (verdict.expected, verdict.observed, _clipped(verdict.detail, _DETAIL))
            ]
            for verdict in attempt.verdicts
        ],
        **{name: index_of(text) for name, text in printed.items()},
    }


def facts_of(observation: Json) -> dict[str, Json]:
    """Return the facts that the page shows of what a worker measured.

    Numbers outside of their bounds come first.

    Keys without a fact are absent.
    """
    leaves: list[tuple[int, Json]] = []
    tunings: list[tuple[int, Json]] = []
    for step, facts in enumerate(_list(_dict(observation).get("steps"))):
        measures = list(_dict(_dict(facts).get("measured")).values())[:_MOST_TUNINGS]
        for measured in (*measures, _dict(facts).get("effects")):
            leaves += [
                (step, leaf)
                for leaf in _list(_dict(measured).get("leaves"))
                if isinstance(_dict(leaf).get("calibrated"), dict) or "picture" in _dict(leaf)
            ]
        tunings += [
            (step, _dict(entry)) for entry in _list(_dict(_dict(facts).get("tunings")).get("found"))
        ]
    leaves.sort(key=lambda entry: "picture" not in entry[1])

    numbers: list[Json] = []
    for step, leaf in leaves[:_MOST_NUMBERS]:
        calibrated = _dict(leaf.get("calibrated"))
        number: dict[str, Json] = {"step": step}
        number |= {name: _word(leaf.get(name)) for name in ("path", "dtype", "shape")}
        number |= {name: _figure(calibrated[name]) for name in _FIGURES if name in calibrated}
        number |= {"why_not": _word(calibrated["why_not"])} if calibrated.get("why_not") else {}
        worst = calibrated.get("worst")
        number |= (
            {"worst": {name: _figure(worst[name]) for name in _OF_WORST if name in worst}}
            if isinstance(worst, dict)
            else {}
        )
        histogram = _dict(calibrated.get("histogram"))
        bins = {
            side: [count for count in _list(histogram.get(side)) if _is_count(count)][:_MOST_BINS]
            for side in ("compiled", "eager")
        }
        if _is_count(first := histogram.get("first"), negative=True) and any(
            map(any, bins.values())
        ):
            number["histogram"] = {"first": first, **bins}
        cells = _dict(leaf.get("picture"))
        if _is_count(columns := cells.get("columns")) and columns:
            sides = {
                side: [*map(_figure, _list(cells.get(side))[:_MOST_CELLS])]
                for side in ("errors", "values", "eager_values")
            }
            size = [*map(_word, _list(cells.get("size"))[:2])]
            number["picture"] = {"columns": columns, "size": size, **sides}
        numbers.append(number)

    choices: list[Json] = []
    for step, tuning in tunings[:_MOST_TUNINGS]:
        words = {name: _word(tuning.get(name)) for name in ("op", "how", "winner", "won_by")}
        backends: dict[str, Json] = {}
        for name, tally in list(_dict(tuning.get("backends")).items())[:_MOST_TUNINGS]:
            figures = [_figure(_dict(tally).get(key)) for key in TALLIED]
            backends[_word(name)] = [*figures, _word(_dict(tally).get("error"))]
        choices.append({"step": step, **words, "backends": backends})
    other_facts = {
        "numbers_left": max(len(leaves) - _MOST_NUMBERS, 0),
        "tunings_left": max(len(tunings) - _MOST_TUNINGS, 0),
    }
    return {
        name: value
        for name, value in {"numbers": numbers, "tunings": choices, **other_facts}.items()
        if value
    }


def pieces_of(folder: Path, attempt: Attempt, names: Sequence[str], room: int) -> list[Json]:
    """Return pieces of generated code and graphs, at most ``room`` characters; the others have
    only their name.

    A piece has the lines that failed verdicts point to, each with the verdict's number: the excerpt
    in its detail is of that line.
    """
    pieces: list[Json] = []
    for name in filter(_CODE.fullmatch, names):
        piece: dict[str, Json] = {"name": name}
        pieces.append(piece)
        limit, text = min(room, PIECE), ""
        if limit > 0:
            with suppress(OSError), open_untrusted(folder / attempt.folder / name) as stream:
                text = _clipped(stream.read(4 * limit).decode("utf-8", "backslashreplace"), limit)
        if not text:
            continue
        room -= len(text)
        piece["text"] = shown(redacted(text))
        lines = text.split("\n")
        marks: list[Json] = []
        for number, verdict in enumerate(attempt.verdicts):
            row = (
                next(filter(None, map(_ROW.fullmatch, verdict.detail.split("\n"))), None)
                if verdict.kind == "filecheck"
                else None
            )
            if row is not None and 0 < int(row["number"]) <= len(lines):
                line, excerpt = lines[int(row["number"]) - 1].expandtabs(4), row["text"].strip()
                if excerpt in line and (excerpt or not line.strip()):
                    marks.append([int(row["number"]), number])
        if marks:
            piece["marks"] = marks
    return pieces


def _clipped(text: str, limit: int) -> str:
    """Return the first ``limit`` characters of a text, and how much is left out."""
    return (
        text
        if len(text) <= limit
        else f"{text[:limit]}\n... {len(text) - limit} more characters are left out ..."
    )


def _dict(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _word(value: Json) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return shown(redacted(text[:_WORD]))


def _figure(value: Json) -> Json:
    """Return a finite number as it is, and anything else as a word."""
    value = _dict(value).get("$float", value)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
        and math.isfinite(value)
    ):
        return value
    return None if value is None else _word(value)


def _is_count(value: Json, *, negative: bool = False) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and abs(value) < 1 << 53
        and (negative or value >= 0)
    )


def sources_of(files: Iterable[str], digests: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return for each YAML file its text, or why it is not shown."""
    sources: dict[str, dict[str, str]] = {}
    for file in files:
        digest = digests.get(file, "")
        source = {
            "why": "this file is not here" if digest else "the journal has no digest of this file"
        }
        # as the journal names it, and next to the installed program
        for path in (Path(file), cache_dirs.folder("schemas").parent / file) if digest else ():
            try:
                data = (
                    path.read_bytes()
                    if path.is_file() and path.stat().st_size <= _LARGEST_SPEC
                    else None
                )
            except OSError as error:
                source = {"why": f"this file cannot be read: {error.strerror}"}
                continue
            if data is None:
                continue
            if hashlib.sha256(data).hexdigest() == digest:
                source = {
                    "text": shown(
                        "\n".join(
                            map(redacted, data.decode("utf-8", "backslashreplace").split("\n"))
                        )
                    )
                }
                break
            source = {"why": "this file has changed since the run"}
        sources[shown(file)] = source
    return sources


# -- the run ---------------------------------------------------------------------------------------


def index_of(results: Sequence[Redacted], firsts: Sequence[int]) -> dict[str, Json]:
    """Return the index; ``firsts`` has the number of the first case of each chunk."""
    tables: dict[str, dict[object, int]] = {
        name: {} for name in ("spec", "backend", "point", "reason", "tags")
    }
    columns: dict[str, list[int]] = {name: [] for name in ("outcome", *tables, "ms")}
    odd: dict[str, str] = {}
    for number, result in enumerate(results):
        # the part of an id behind its backend; an id of another form is kept whole
        begin = f"{f'{result.area}/' if result.area else ''}{result.name}[backend={result.backend}"
        rest = result.case_id.removeprefix(begin)
        point = rest[1:-1]
        if rest == result.case_id or not (
            rest == "]" or (rest.startswith(",") and rest.endswith("]"))
        ):
            point = ""
            odd[str(number)] = shown(result.case_id)
        values: dict[str, object] = {
            "spec": (result.spec, result.area, result.name),
            "backend": result.backend,
            "point": point,
            "reason": (result.failure_type, one_line(result.reason, _REASON)),
            "tags": tuple(result.tags),
        }
        for name, value in values.items():
            columns[name].append(tables[name].setdefault(value, len(tables[name])))
        columns["outcome"].append(_FIRST.index(result.outcome))
        columns["ms"].append(round(result.seconds * 1000))
    numbers = {id(result): number for number, result in enumerate(results)}
    of_cause: list[list[Redacted]] = []
    shared: list[object] = []
    if failed := [result for result in results if result.outcome.is_failure]:
        from torch_conformance.report.causes import (
            causes,
            shared_by_failures,
        )  # only for a run with failures

        of_cause = causes(failed)
        shared = list(itertools.islice(shared_by_failures(results), _MOST_NUMBERS))
    return {
        "outcomes": [
            [kind.label, kind.is_failure, kind.is_executed, kind.glyph] for kind in _FIRST
        ],
        **{f"{name.removesuffix('s')}s": _shown(list(table)) for name, table in tables.items()},
        "odd": odd,
        "shared": _shown(shared),
        "first_of_cause": {
            str(numbers[id(other)]): numbers[id(first)]
            for first, *others in of_cause
            for other in others
        },
        "chunks": list(firsts),
        "columns": columns,
    }


def head_of(run: ReportedRun) -> dict[str, Json]:
    """Return what every view shows of the run."""
    header, results, footer = run.header, run.results, run.footer
    statement = profile_statement(header, results) if footer else None
    totals = Counter(result.outcome for result in results)
    return {
        "run": shown(header.run_id),
        "started": shown(header.started),
        "version": shown(header.version),
        "selected": header.selected,
        "executed": sum(result.is_executed for result in results),
        "required": statement.required if statement else header.selected,
        "of_profile": f"{shown(statement.profile)} {shown(statement.version)}" if statement else "",
        "conformance": statement.words if statement else "",
        "remark": shown(statement.remark) if statement else "",
        "remarks": [
            *filter(None, [flaky_words(results)]),
            *(shown(f"doctor: {warning.text}") for warning in (footer.warnings if footer else ())),
        ],
        "totals": {outcome.label: totals[outcome] for outcome in _FIRST},
        "has_support": any(result.eager_operators != NOT_MEASURED for result in results),
        "environment": _shown(dict(header.environment)),
        "truncated": footer is None,
        "interrupted": bool(footer and footer.interrupted),
        "exit_code": footer.exit_code if footer else None,
        "seconds": footer.seconds if footer else None,
        "ended": shown(footer.ended) if footer else "",
    }


def run_facts(run: ReportedRun) -> dict[str, Json]:
    """Return what only the view of the run shows."""
    header = run.header
    # the upstream tests that cases restate, with the cases by outcome
    covered: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in run.results:
        for name in dict.fromkeys(name.partition("[")[0] for name in result.covers):
            covered[name][result.outcome.label] += 1
    statement = profile_statement(header, run.results) if run.footer else None
    statements = [
        {
            "profile": statement.profile,
            "version": statement.version,
            "conformance": statement.words,
            "levels": [
                [
                    level.level,
                    level.words,
                    level.required,
                    level.executed,
                    level.passed,
                    level.waived,
                    level.flaky,
                ]
                + [len(level.failed), len(level.not_executed)]
                for level in statement.levels
            ],
            "problems": [*statement.about_compiler, *statement.problems],
            "waivers": [
                [waiver.reason, waiver.issue, waiver.until, len(waiver.used_by)]
                for waiver in statement.waivers
            ],
        }
        for statement in ([statement] if statement else [])
    ]
    return {
        "command": _shown(header.command),
        "variables": _shown(dict(header.variables)),
        "options": _shown(dict(header.options)),
        "shard": shown(header.shard),
        "shuffle": shown(header.shuffle),
        "merged": _shown(header.merged),
        "not_requested": header.not_requested,
        "coverage": [[shown(name), dict(counts)] for name, counts in sorted(covered.items())],
        "statement": _shown(statements),
    }


def support_facts(run: ReportedRun) -> dict[str, Json]:
    """Return the support table, where who computed the operators was measured; a cell has the
    number of its case.
    """
    from torch_conformance.report.support_table import (
        State,
        compilers_of,
        measured_cells,
        suites_of,
    )  # few runs have one

    numbers = {id(result): number for number, result in enumerate(run.results)}
    states = list(State)
    tables = suites_of(measured_cells(run.results))
    cells = [
        (
            table,
            f"{cell.operator} {cell.place}".strip(),
            cell.type or "calls",
            states.index(cell.state),
            cell.detail + ("" if cell.error is None else f" ({cell.error:.2g})"),
            numbers[id(cell.result)],
        )
        for table, of_suite in enumerate(tables.values())
        for cell in of_suite
    ]
    return {
        "states": [[state.word, state.meaning] for state in State],
        "tables": _shown(list(tables)),
        "compilers": _shown(dict(compilers_of(run.header))),
        "cells": _shown(cells),
    }


def timeline_of(results: Sequence[Redacted]) -> dict[str, list[Json]]:
    """Return which execution ran when, on which worker and GPU, as columns; of those whose
    beginning the journal has, by their beginning.

    Times are in milliseconds, since the first execution. Each is in the lowest lane that is free
    when it begins.
    """
    executions: list[tuple[float, int, Attempt]] = []
    for number, result in enumerate(results):
        for attempt in result.attempts or (result,):
            with suppress(ValueError, OverflowError):
                if attempt.begun:
                    executions.append(
                        (datetime.fromisoformat(attempt.begun).timestamp(), number, attempt)
                    )
    executions.sort(key=lambda execution: execution[:2])
    columns: dict[str, list[Json]] = {
        name: [] for name in ("case", "begun", "ms", "lane", "worker", "gpus", "outcome")
    }
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for moment, number, attempt in executions:
        begun, seconds = moment - executions[0][0], max(attempt.seconds, 0.0)
        while busy and busy[0][0] <= begun + _SLACK:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (begun + seconds, lane))
        row = (
            number,
            round(begun * 1000),
            round(seconds * 1000),
            lane,
            attempt.worker,
            list(attempt.gpus),
            attempt.outcome.label,
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns

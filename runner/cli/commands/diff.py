"""``diff``: what changed between two recorded runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.comparison import FAIL_ON, Comparison
from runner.core.diagnostics import UsageError, shown_path, unknown
from runner.core.exit_codes import ExitCode
from runner.core.options import argument, flag, option, over_one, several
from runner.report.comparison import document_of, lines_of, page_of, write_page
from runner.run.comparison import compare, read_placed, texts_of
from runner.system import output


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of ``diff``."""

    before: str = argument("RUN", "the first run: its folder, its id, latest, or a journal (a .jsonl file) alone")
    after: str = argument("RUN", "the second run")
    map_backend: tuple[str, ...] = several(
        "A=B",
        "compare the cases of backend A of the first run with those of backend B of the second, and no others; the two runs may be one",
    )
    fail_on: tuple[str, ...] = several(
        "WORDS",
        "exit 1 if a case has one of these words, with commas between them: broken, new-failure, gone, no-longer-executed, waived, "
        "changed, still-failing, fixed, new, now-executed, slower, spec-changed",
    )
    slower: float = option(
        "F",
        "a case is slower if it took more than F times as long, and a second more, after the pace of the whole run is taken out "
        "(default: 2)",
        2.0,
        over_one,
    )
    code: bool = flag("print what differs in the generated code and the graphs of changed cases")
    html: Path | None = option("FILE", "also write one HTML page, with what differs in generated code and graphs", reads=Path)
    json: bool = flag("print one object")


def main(options: DiffOptions) -> ExitCode:
    """Compare the runs; exit 1 for a change of ``--fail-on``, 4 where nothing could be compared."""
    fail_on, backends = _words(options.fail_on), _pairs(options.map_backend)
    before = read_placed(options.before)
    after = before if options.after == options.before else read_placed(options.after)
    comparison = compare(before, after, backends=backends, slower=options.slower)
    texts = tuple(texts_of(comparison.listed, before, after))
    code = _exit_code(comparison, fail_on)
    if options.html is not None:
        write_page("--html", options.html, page_of(comparison, texts))
        output.note(f"page: {shown_path(options.html)}")
    if options.json:
        output.document(document_of(comparison, texts, fail_on=fail_on, exit_code=int(code)))
    else:
        output.lines(lines_of(comparison, texts, with_code=options.code))
    for word, count in comparison.reached(fail_on).items():
        output.note(f"--fail-on {word}: {count}")
    if code is ExitCode.NOTHING:
        output.note(f"nothing was compared: no case has a result in both runs{_hint(comparison)}")
    return code


def _exit_code(comparison: Comparison, fail_on: Sequence[str]) -> ExitCode:
    if comparison.reached(fail_on):
        return ExitCode.FAILED
    return ExitCode.OK if comparison.both else ExitCode.NOTHING


def _hint(comparison: Comparison) -> str:
    return "" if comparison.backends else " (--map-backend A=B compares two backends)"


def _words(given: Sequence[str]) -> tuple[str, ...]:
    """Return the words of ``--fail-on``; raise ``UsageError`` for one that does not exist."""
    words = [word.strip() for text in given for word in text.split(",")]
    for word in words:
        if word not in FAIL_ON:
            message, hint = unknown("change", word, FAIL_ON)
            raise UsageError(f"--fail-on: {message} ({hint})")
    return tuple(dict.fromkeys(words))


def _pairs(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of ``--map-backend``; raise ``UsageError`` for a malformed one, and for a backend that is in two pairs."""
    pairs = [text.partition("=") for text in given]
    for text, (first, equals, second) in zip(given, pairs, strict=True):
        if not (first and equals and second) or "=" in second:
            raise UsageError(f"--map-backend {text}: write A=B, the backend of the first run and that of the second")
    for index in (0, 2):
        names = [pair[index] for pair in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"--map-backend names '{twice[0]}' twice on one side: each case is compared with one other")
    return tuple((first, second) for first, _, second in pairs)

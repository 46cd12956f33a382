"""GitHub Actions: annotations as workflow commands, and the summary of the job; and what is wrong
with a run as a whole.

A list of cases can look green: a run that was killed has few of them, and a run in which
nothing was executed has no failure.

Annotations and summary are made of untrusted text. A command ends at a line end, and its properties
at ``:`` and ``,``, so these are escaped as GitHub's own toolkit does, after control characters and
other commands were made visible. In the summary, text is within HTML elements with each special
character as a character reference, where it is neither Markdown nor HTML.
"""

import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_conformance.machine import output
from torch_conformance.model.escaping import line, one_line, plain, visible_name
from torch_conformance.model.events import Listener, RunAbandoned, RunEnded, RunEvent
from torch_conformance.model.header import ReportedRun
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.results import Redacted, executed
from torch_conformance.record.run_folder import JUNIT
from torch_conformance.report import ReportSetup, clip, size, slug
from torch_conformance.report.causes import causes
from torch_conformance.report.junit import NAME, TRUNCATED, cached_file, failure_type
from torch_conformance.report.terminal import report_of, why_no_success

MOST_ANNOTATIONS = 10
"""GitHub shows ten errors and ten warnings of a step, and 50 annotations of a job; it drops others
silently.
"""

SUMMARY_LIMIT = 1 << 20
"""Bytes of the summary of a step; GitHub shows nothing of a larger one."""

_MESSAGE = 2_000
_TITLE = 200
_LEAST = 2_000
"""Bytes that the head of a summary needs."""
_IDS = 10

_SPECIAL = re.compile(r"[^A-Za-z0-9 ]")


def problems_of(run: ReportedRun) -> list[str]:
    """Return why a run as a whole is not a success, apart from its failed cases."""
    footer, count = run.footer, executed(run.results)
    if footer is None:
        return [one_line(f"truncated: {run.why or TRUNCATED}", _MESSAGE)]
    problems = (
        ["the run was interrupted; its other cases were not run"] if footer.interrupted else []
    )
    problems += why_no_success(run)
    if not problems and not run.failed and (footer.exit_code != ExitCode.OK or not count):
        required = one_line(run.header.options.get("require", ""))
        problems.append(
            f"the run exited with {footer.exit_code}, {count} cases were "
            f"executed{required and f' (--require {required})'}"
        )
    return problems


@dataclass
class GitHubReporter(Listener):
    """Writes the summary and the annotations at the end of a run."""

    setup: ReportSetup

    def on_event(self, event: RunEvent) -> None:
        """Tell GitHub how the run ended.

        A summary that cannot be written is a warning, and does not fail the run.
        """
        if not isinstance(event, RunEnded | RunAbandoned):
            return
        cached_file.cache_clear()
        for command in annotations(event):
            output.command(command)
        if not (name := os.environ.get("GITHUB_STEP_SUMMARY")):
            return
        try:
            with Path(name).open("ab") as stream:  # other programs of the step write to it too
                room = SUMMARY_LIMIT - stream.tell() - 2
                if room < _LEAST:
                    output.note("warning: the summary of this step is full; the run is not in it")
                else:
                    stream.write(f"\n{summary(event, self.setup.folder.path, room)}".encode())
        except OSError as error:
            output.note(f"warning: no summary was written to {name}: {error.strerror or error}")


# -- annotations -----------------------------------------------------------------------------------


def annotations(run: ReportedRun) -> list[str]:
    """Return the workflow commands of a run, no more than GitHub shows.

    The cases that fail at one line for one reason share one.
    """
    errors = [
        _command("error", problem, title=f"{NAME}: no success") for problem in problems_of(run)
    ]
    groups = causes(run.failed, _place_of)
    room = MOST_ANNOTATIONS - len(errors)
    shown = groups if len(groups) <= room else groups[: max(room - 1, 0)]
    errors += [_of_group("error", group) for group in shown]
    if rest := [result for group in groups[len(shown) :] for result in group]:
        text = f"{len(rest)} more failed cases have no annotation: {_first_words(rest, _IDS)}"
        errors.append(_command("error", text, title=f"{NAME}: {len(rest)} more failures"))
    flaky = causes(filter(run.header.lets_pass, run.results), _place_of)
    return errors + [_of_group("warning", group) for group in flaky[:MOST_ANNOTATIONS]]


def _place_of(result: Redacted) -> object:
    return _file_of(result), result.position.line, failure_type(result)


def _of_group(kind: str, group: list[Redacted]) -> str:
    first = group[0]
    lines = [one_line(first.reason, 1_000) or slug(first.outcome)]
    for verdict in first.failed[:1]:
        if verdict.expected:
            lines += [
                f"expected: {one_line(verdict.expected)}",
                f"observed: {one_line(verdict.observed)}",
            ]
    lines.append(_first_words(group, _IDS))
    lines += [f"repro: {one_line(first.repro)}"] if first.repro else []
    title = one_line(f"{first.outcome.label} {first.name}: {failure_type(first)}", _TITLE)
    file, at = _file_of(first), first.position
    return _command(
        kind,
        "\n".join(lines),
        file=file,
        line=str(max(at.line, 1)),
        col=str(max(at.column, 1)),
        title=title,
    )


def _file_of(result: Redacted) -> str:
    return visible_name(cached_file(result.position.file or result.spec))


def _first_words(results: Sequence[Redacted], most: int) -> str:
    """Return the first ids of some cases, and how many more there are."""
    shown = ", ".join(visible_name(result.case_id) for result in results[:most])
    return f"{shown} and {len(results) - most} more" if len(results) > most else shown


def _command(kind: str, text: str, **properties: str) -> str:
    """Return a workflow command on one line."""
    parameters = ",".join(
        f"{name}={_data(line(value)).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
    )
    message_lines = filter(
        None, (one_line(part, _MESSAGE) for part in text[: 4 * _MESSAGE].split("\n"))
    )
    return f"::{kind} {parameters}::{_data(chr(10).join(message_lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# -- summary ---------------------------------------------------------------------------------------


def summary(run: ReportedRun, folder: Path, room: int = SUMMARY_LIMIT) -> str:
    """Return the summary of a run as Markdown, at most ``room`` bytes: how it ended, and what a
    terminal shows of it.
    """
    problems = problems_of(run)
    failed = f"{len(run.failed)} failed" if run.failed else "no success" if problems else "passed"
    names = ("torch", "python", "device", "arch")
    facts = ", ".join(
        f"{name} {value}" for name in names if (value := run.header.environment.get(name))
    )
    lines = [
        f"## {NAME}: {failed}, {executed(run.results)} executed",
        "",
        *(f"- {_inline(problem)}" for problem in problems),
    ]
    lines += ["", f"{_inline(facts)} run {_inline(run.header.run_id)}", "", ""]
    head = "\n".join(lines)
    if size(head) + _LEAST // 2 > room:
        head = f"{lines[0]}\n\n"
    text = plain(report_of(run, junit=cached_file(str(folder / JUNIT)), folder=folder))
    limit = available = room - size(head) - len("<pre></pre>\n")
    while size(shown := html.escape(clip(text, limit))) > available:
        limit //= 2
    return f"{head}<pre>{shown}</pre>\n"


def _inline(text: str) -> str:
    """Return text that is neither Markdown nor HTML: each special character is a character
    reference.
    """
    shown = _SPECIAL.sub(lambda match: f"&#{ord(match.group())};", one_line(text, _MESSAGE))
    return f"<code>{shown}</code>" if shown else ""

"""What CI systems make of a JUnit report and of a log: small readers, written from what the real
ones read and ignore.

A reader of JUnit takes the bytes of a file and returns what a person would see of each case.
Jenkins' junit and xunit plugins, GitLab, mikepenz/action-junit-report, dorny/test-reporter, Azure's
PublishTestResults and Buildkite's Test Engine read different attributes, and each ignores some that
others need.
"""

import functools
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # lxml has no py.typed, and lxml-stubs are not a dependency of the tests

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
XSD = etree.XMLSchema(etree.parse(Path(__file__).parent / "data" / "junit-xunit-plugin.xsd"))
_STATUSES = {"error": FAILED, "failure": FAILED, "skipped": SKIPPED}


@dataclass(frozen=True)
class Seen:
    """One case as a reader shows it."""

    name: str
    group: str
    status: str
    text: str
    """What is shown of a case that is not a pass."""
    attachments: tuple[str, ...] = ()


class RefusedError(Exception):
    """The reader shows nothing of this file."""


@dataclass(frozen=True)
class Reader:
    """What one reader needs, and what it shows besides the text of an element."""

    needs: tuple[str, ...] = ()
    """Attributes of a case without which it refuses the file."""
    message: bool = True
    attempts: bool = False
    """The further attempts of a case."""
    attachments: tuple[str, ...] = ()
    """Those of cases with these statuses."""
    is_flat: bool = False
    """It reads only direct suites, each with a name."""
    is_strict: bool = False
    """It reads what is valid by its schema alone."""


_READERS: Mapping[str, Reader] = {
    "jenkins-junit": Reader(needs=("name",), attempts=True, attachments=(PASSED, FAILED, SKIPPED)),
    "jenkins-xunit": Reader(
        needs=("name",), attempts=True, attachments=(PASSED, FAILED, SKIPPED), is_strict=True
    ),
    "gitlab": Reader(message=False, attachments=(FAILED,)),
    "mikepenz": Reader(),
    "dorny": Reader(needs=("time",), is_flat=True),
    "azure": Reader(),
    "buildkite": Reader(needs=("classname", "name"), message=False),
}


def read(reader: Reader, data: bytes) -> list[Seen]:
    """Return what a reader shows of a report."""
    if reader.is_strict and not XSD.validate(etree.fromstring(data)):
        raise RefusedError(str(XSD.error_log.last_error))
    try:
        root = ET.fromstring(data)
    except ET.ParseError as error:
        raise RefusedError(str(error)) from error
    seen: dict[tuple[str, str], Seen] = {}  # GitLab shows the first of two cases with one name
    for suite in root.findall("testsuite") if reader.is_flat else root.iter("testsuite"):
        if reader.is_flat and suite.get("name") is None:
            raise RefusedError("a suite without a name")
        for case in suite.findall("testcase"):
            if not all(map(case.get, reader.needs)) or (
                "time" in reader.needs and math.isnan(float(case.get("time", "nan")))
            ):
                raise RefusedError(f"a case without {' or '.join(reader.needs)}")
            element = next(
                (child for tag in _STATUSES if (child := case.find(tag)) is not None), None
            )
            status = PASSED if element is None else _STATUSES[element.tag]
            text = (
                ""
                if element is None
                else f"{element.get('message', '') if reader.message else ''}\n{element.text or ''}"
            )
            for attempt in (
                case.findall("flakyFailure") + case.findall("rerunFailure")
                if reader.attempts
                else ()
            ):
                text += f"\n{attempt.get('message', '')}\n{attempt.findtext('stackTrace', '')}"
            attached = re.findall(
                r"^\[\[ATTACHMENT\|(.+?)\]\]$", case.findtext("system-out", ""), re.MULTILINE
            )
            name, group = case.get("name", ""), case.get("classname") or suite.get("name", "")
            seen.setdefault(
                (group, name),
                Seen(
                    name,
                    group,
                    status,
                    text,
                    tuple(attached) if status in reader.attachments else (),
                ),
            )
    if not seen:
        raise RefusedError("no results: the job fails")
    return list(seen.values())


READERS: Mapping[str, Callable[[bytes], list[Seen]]] = {
    name: functools.partial(read, reader) for name, reader in _READERS.items()
}
jenkins_junit, jenkins_xunit = READERS["jenkins-junit"], READERS["jenkins-xunit"]


# -- logs of GitHub Actions ------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A workflow command, as the runner of GitHub Actions reads it from a line of a log."""

    name: str
    properties: Mapping[str, str]
    data: str


def github_commands(log: str) -> Iterator[Command]:
    """Yield the commands of a log: lines that begin with ``::``, and the first form, ``##[name]``,
    anywhere in a line.
    """
    for line in re.split(r"\r\n|\r|\n", log):
        text = line.strip()
        if text.startswith("::") and (end := text.find("::", 2)) > 0:
            name, _, rest = text[2:end].partition(" ")
            pairs = (part.partition("=") for part in rest.strip().split(",") if part)
            properties = {key.strip(): _unescaped(value, property_=True) for key, _, value in pairs}
            yield Command(name, properties, _unescaped(text[end + 2 :], property_=False))
        elif found := re.search(r"##\[([a-z-]+)", text):
            yield Command(found[1], {}, text)


def _unescaped(text: str, *, property_: bool) -> str:
    table = {
        "%0D": "\r",
        "%0A": "\n",
        **({"%3A": ":", "%2C": ","} if property_ else {}),
        "%25": "%",
    }
    for code, char in table.items():
        text = text.replace(code, char)
    return text


# -- pages -----------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", {}))

    def handle_decl(self, decl: str) -> None:
        self.tags.append(("declaration", {"text": decl}))

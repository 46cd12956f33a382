"""What CI systems make of a JUnit report and of a log: small readers, written from what the real ones read and ignore.

Each reader of JUnit takes the bytes of a file and returns what a person would see of each case. Jenkins' junit and xunit plugins, GitLab,
mikepenz/action-junit-report, dorny/test-reporter, Azure's PublishTestResults and Buildkite's Test Engine read different attributes, and
each ignores some that others need.
"""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # lxml has no py.typed, and lxml-stubs are not a dependency of the tests

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
XSD = etree.XMLSchema(etree.parse(Path(__file__).parent / "data" / "junit-xunit-plugin.xsd"))


@dataclass(frozen=True)
class Seen:
    """One case as a reader shows it."""

    name: str
    group: str
    status: str
    text: str = ""
    """What is shown of a case that is not a pass."""
    place: str = ""
    """``file:line``, where the reader shows one."""
    attachments: tuple[str, ...] = ()
    output: str = ""
    flaky: int = 0


class RefusedError(Exception):
    """The reader shows nothing of this file."""


def jenkins_junit(data: bytes) -> list[Seen]:
    """Jenkins' junit plugin: an error before a failure, text with the message, the class name or else the suite's name."""
    found = []
    for suite in _parsed(data).iter("testsuite"):
        for case in suite.findall("testcase"):
            if not case.get("name"):
                raise RefusedError("a case without a name")
            status, element = _verdict(case)
            text = "" if element is None else f"{element.get('message', '')}\n{element.text or ''}"
            output = case.findtext("system-out", "")
            flaky = len(case.findall("flakyFailure"))
            for attempt in case.findall("flakyFailure") + case.findall("rerunFailure"):
                text += f"\n{attempt.get('message', '')}\n{attempt.findtext('stackTrace', '')}"
            group = case.get("classname") or suite.get("name", "")
            found.append(Seen(case.get("name", ""), group, status, text, attachments=_attachments(output), output=output, flaky=flaky))
    if not found:
        raise RefusedError("no results: the job fails")
    return found


def jenkins_xunit(data: bytes) -> list[Seen]:
    """Jenkins' xunit plugin: the same reader behind a schema."""
    document = etree.fromstring(data)
    if not XSD.validate(document):
        raise RefusedError(str(XSD.error_log.last_error))
    return jenkins_junit(data)


def gitlab(data: bytes) -> list[Seen]:
    """GitLab: text of the element and not its message, attachments of red cases, the first of two cases with one name."""
    found: dict[tuple[str, str], Seen] = {}
    for case in _parsed(data).iter("testcase"):
        status, element = _verdict(case)
        output = case.findtext("system-out", "")
        files = _attachments(output) if status == FAILED else ()
        key = (case.get("classname", ""), case.get("name", ""))
        text = (element.text or "") if element is not None else ""
        found.setdefault(key, Seen(key[1], key[0], status, text, case.get("file", ""), files, output))
    return list(found.values())


def mikepenz(data: bytes) -> list[Seen]:
    """mikepenz/action-junit-report: annotations at file and line of the case, or else of the failure."""
    found = []
    for suite in _parsed(data).iter("testsuite"):
        for case in suite.findall("testcase"):
            status, element = _verdict(case)
            sources = [case, *([element] if element is not None else []), suite]
            file = next((source.get("file", "") for source in sources if source.get("file")), "")
            line = next((source.get("line", "") for source in sources if source.get("line")), "")
            text = f"{element.get('message', '')}\n{element.text or ''}" if element is not None else ""
            flaky = len(case.findall("flakyFailure"))
            found.append(Seen(case.get("name", ""), case.get("classname", ""), status, text, f"{file}:{line}", flaky=flaky))
    return found


def dorny(data: bytes) -> list[Seen]:
    """dorny/test-reporter: only direct suites, each with a name; a time that is missing is not a number."""
    found = []
    root = _parsed(data)
    for suite in root.findall("testsuite"):
        if suite.get("name") is None:
            raise RefusedError("a suite without a name")
        for case in suite.findall("testcase"):
            if math.isnan(float(case.get("time", "nan"))):
                raise RefusedError("a case without a time")
            status, element = _verdict(case)
            text = f"{element.get('message', '')}\n{element.text or ''}" if element is not None else ""
            found.append(Seen(case.get("name", ""), case.get("classname", ""), status, text))
    return found


def azure(data: bytes) -> list[Seen]:
    """Azure: a file that cannot be parsed is a warning and no results; a case without a name is dropped."""
    try:
        root = _parsed(data)
    except RefusedError:
        return []
    found = []
    for case in root.iter("testcase"):
        status, element = _verdict(case)
        text = f"{element.get('message', '')}\n{element.text or ''}" if element is not None else ""
        if case.get("name"):
            found.append(Seen(case.get("name", ""), case.get("classname", ""), status, text, output=case.findtext("system-out", "")))
    return found


def buildkite(data: bytes) -> list[Seen]:
    """Buildkite's Test Engine: class name and name are needed."""
    found = []
    for case in _parsed(data).iter("testcase"):
        if not case.get("classname") or not case.get("name"):
            raise RefusedError("a case without a class name or a name")
        status, element = _verdict(case)
        found.append(Seen(case.get("name", ""), case.get("classname", ""), status, (element.text or "") if element is not None else ""))
    return found


READERS: Mapping[str, Callable[[bytes], list[Seen]]] = {
    "jenkins-junit": jenkins_junit,
    "jenkins-xunit": jenkins_xunit,
    "gitlab": gitlab,
    "mikepenz": mikepenz,
    "dorny": dorny,
    "azure": azure,
    "buildkite": buildkite,
}


def _parsed(data: bytes) -> ET.Element:
    try:
        return ET.fromstring(data)
    except ET.ParseError as error:
        raise RefusedError(str(error)) from error


def _verdict(case: ET.Element) -> tuple[str, ET.Element | None]:
    for tag, status in (("error", FAILED), ("failure", FAILED), ("skipped", SKIPPED)):
        if (element := case.find(tag)) is not None:
            return status, element
    return PASSED, None


def _attachments(output: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^\[\[ATTACHMENT\|(.+?)\]\]$", output, re.MULTILINE))


# -- logs of GitHub Actions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A workflow command, as the runner of GitHub Actions reads it from a line of a log."""

    name: str
    properties: Mapping[str, str]
    data: str


def github_commands(log: str) -> Iterator[Command]:
    """Yield the commands of a log: lines that begin with ``::``, and the first form, ``##[name]``, anywhere in a line."""
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
    table = {"%0D": "\r", "%0A": "\n", **({"%3A": ":", "%2C": ","} if property_ else {}), "%25": "%"}
    for code, char in table.items():
        text = text.replace(code, char)
    return text

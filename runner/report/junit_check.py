"""Whether a JUnit report says what a journal says: it is written again and compared, element by element."""

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from runner.core.header import LedgerCount, RunHeader
from runner.core.results import CaseResult
from runner.report import one_line
from runner.report.junit import FILE_LIMIT, document_of

_BY_FOLDER = {("testcase", "file"), ("testsuite", "name")}
"""What depends on the folder in which a report is written."""


def difference(report: bytes, header: RunHeader, results: Sequence[CaseResult], ledgers: Sequence[LedgerCount]) -> str:
    """Return where a report differs from the one that a journal gives; empty if nowhere. The report is untrusted."""
    if len(report) > 2 * FILE_LIMIT or b"<!" in report:
        return "it is larger than a report, or has a declaration of a type"
    try:
        # Read as UTF-8 whatever it declares: in another encoding the bytes of a declaration are others. UTF-16 has zero bytes.
        found = ET.fromstring(_without_zeros(report.decode("utf-8")))  # noqa: S314 - without a declaration no entity can be defined
    except (ET.ParseError, ValueError) as error:
        return f"it is no XML: {one_line(str(error))}"
    return _difference(found, ET.fromstring(document_of(header, results, ledgers)), "")  # noqa: S314 - this program has just written the text


def _without_zeros(text: str) -> str:
    """Return the text; raise ``ValueError`` if it has a NUL, by which the parser would recognise UTF-16."""
    if "\0" in text:
        raise ValueError("it has a zero byte")
    return text


def _difference(found: ET.Element, expected: ET.Element, where: str) -> str:
    named = expected.get("name", "") if expected.tag in ("testcase", "testsuite", "property") else ""
    where = f"{where}/{expected.tag}{f' {one_line(named)}' if named else ''}"
    if found.tag != expected.tag:
        return f"{where}: it has '{one_line(found.tag)}' there"
    for name in sorted({*found.keys(), *expected.keys()}):
        if (expected.tag, name) not in _BY_FOLDER and found.get(name) != expected.get(name):
            return f"{where}: its {one_line(name)} is '{one_line(found.get(name, ''))}', and the journal gives '{expected.get(name, '')}'"
    if (found.text or "").strip() != (expected.text or "").strip() or (found.tail or "").strip():
        return f"{where}: its text is not what the journal gives"
    for mine, other in itertools.zip_longest(found, expected):
        if mine is None or other is None:
            return f"{where}: it has {len(found)} elements, and the journal gives {len(expected)}"
        if words := _difference(mine, other, where):
            return words
    return ""

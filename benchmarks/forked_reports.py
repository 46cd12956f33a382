"""A pytest plugin, ``-p forked_reports``, without which pytest-forked 1.7.5 fails every test under pytest 9.2.

It sends each report from its child by ``marshal``, attribute by attribute; in pytest 9.2 one of them (``_id``) is nothing that marshal can
write, and the text that took its place, ``nodeid``, is no attribute any more.
"""

import functools
import marshal
from typing import Any

import pytest_forked

_serialize = pytest_forked.serialize_report


def _can_be_sent(value: object) -> bool:
    try:
        marshal.dumps(value)
    except ValueError:
        return False
    return True


@functools.wraps(_serialize)
def serialize_report(report: Any) -> dict[str, Any]:
    """Return what of a report can cross to the parent."""
    sent = {name: value for name, value in _serialize(report).items() if not name.startswith("_") or _can_be_sent(value)}
    return {**sent, "nodeid": report.nodeid}


pytest_forked.serialize_report = serialize_report

"""The corpus of historical wrong answers is complete: each spec names its issue, and is seen or has
a reason.

No test imports torch.
"""

from collections import Counter

import pytest

from tools.faults.catalogue import FAULTS
from tools.faults.corpus import NOT_SHOWN, SPECS, WITHOUT_SPEC, issues
from tools.faults.regressions import ROWS

SEEN = [spec for _, _, specs in ROWS for spec in specs]
LINES = 15
"""How long a spec of the corpus may be, comments aside."""


def test_every_spec_is_seen_or_has_a_reason() -> None:
    assert sorted([*SEEN, *NOT_SHOWN]) == sorted(issues())


def test_every_issue_stands_once() -> None:
    counts = Counter(
        [*(issue for issue, _ in issues().values()), *(one.issue for one in WITHOUT_SPEC)]
    )
    assert [issue for issue, count in counts.items() if count > 1] == []


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(SEEN) >= 40
    assert len(issues()) + len(WITHOUT_SPEC) >= 60


def test_every_row_is_in_the_catalogue() -> None:
    for plant, _, specs in ROWS:
        assert FAULTS[plant.__name__.replace("_", "-")].seen_by == tuple(
            f"regressions/{spec}[backend=cpu]" for spec in specs
        )


@pytest.mark.parametrize("path", sorted(SPECS.glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_a_spec_is_short(path) -> None:
    lines = [
        line
        for line in path.read_text("utf-8").splitlines()
        if line and not line.lstrip().startswith("#")
    ]
    assert len(lines) <= LINES

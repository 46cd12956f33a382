"""The corpus of historical wrong answers is complete: each spec names its issue, and is seen or has
a reason.

No test imports torch.
"""

from collections import Counter

import pytest

from tools.faults.corpus import NOT_SHOWN, SPECS, WITHOUT_SPEC, issues, seen

LINES = 15
"""How long a spec of the corpus may be, comments aside."""


def test_every_spec_is_seen_or_has_a_reason() -> None:
    assert sorted([*seen(), *NOT_SHOWN]) == sorted(issues())


def test_every_issue_stands_once() -> None:
    counts = Counter(issue for issue, _ in issues().values())
    counts.update(issue for tried in WITHOUT_SPEC.values() for issue in tried)
    assert max(counts.values()) == 1
    assert len(counts) >= 60


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(seen()) >= 40


@pytest.mark.parametrize("path", sorted(SPECS.glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_a_spec_is_short(path) -> None:
    lines = [
        line
        for line in path.read_text("utf-8").splitlines()
        if line and not line.lstrip().startswith("#")
    ]
    assert len(lines) <= LINES

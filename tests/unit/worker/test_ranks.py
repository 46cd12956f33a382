"""Ranks: one that dies or does not end is named, and none is left; whose exception is shown."""

import subprocess
from typing import Any

import pytest

pytestmark = pytest.mark.torch

SLEEPS, DIES, EXITS, ENDS = "sleep 60", "kill -SEGV $$", "exit 3", ""


class Rank:
    """A shell command in the place of a rank; it sends an observation where it ends with 0."""

    def __init__(self, command: str) -> None:
        self.process = subprocess.Popen(["sh", "-c", command], start_new_session=True)

    def observation(self) -> Any:
        return None if self.process.wait() else {"error": None, "steps": [{"raised": None}]}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ([SLEEPS, DIES], "rank 1 ended by SIGSEGV, and sent no result"),
        ([EXITS, SLEEPS], "rank 0 ended with code 3, and sent no result"),
        ([ENDS, SLEEPS], "rank 1 did not end within 0.3 s"),
        ([SLEEPS, ENDS, SLEEPS], "rank 0, rank 2 did not end within 0.3 s"),
    ],
)
def test_a_rank_without_a_result_is_named_and_no_rank_is_left(
    torch: Any, commands: list[str], problem: str
) -> None:
    from torch_conformance.vocabulary.steps.step_base import NotCarriedOut
    from torch_conformance.worker.case.ranks import observations

    ranks = [Rank(command) for command in commands]
    with pytest.raises(NotCarriedOut, match=f"^{problem}$"):
        observations(ranks, 0.3)
    assert all(rank.process.poll() is not None for rank in ranks)


def test_what_a_rank_raises_names_the_rank_that_raised_first(torch: Any) -> None:
    from torch_conformance.worker.case.ranks import add_first_exception

    closed, own = ({"type": "E", "message": text} for text in ("closed", "own"))
    seen = [
        {"error": None, "steps": [{"raised": closed}], "raised_as": 2},
        {"error": None, "steps": [{"raised": None}]},
        {"error": own, "steps": [], "raised_as": 1},
    ]
    add_first_exception(seen)
    assert closed["message"] == "closed (rank 2 raised before it: E: own)"
    assert own["message"] == "own"
    add_first_exception(seen[1:2])

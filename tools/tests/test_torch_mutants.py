"""Small changes of torch's own source are detected: 20 mutants, each with one cheap case that
passes without it.

All of them run at once, each in the worker of its case. ``python -m tools.mutants`` draws samples
of the others.
"""

from collections.abc import Mapping

import pytest

from tests.fakes import environment
from tools.mutants.choosing import Tried, tried
from tools.mutants.named import Caught, in_ci, missing, torch_version
from tools.mutants.operators import Mutant
from tools.running import cases_of
from torch_conformance.model.outcomes import Outcome

pytestmark = pytest.mark.torch

Outcomes = tuple[Mapping[Mutant, Tried], Mapping[str, Outcome]]

MADE_FOR, CAUGHT = in_ci()


@pytest.fixture(scope="module")
def found() -> Mapping[Caught, Mutant]:
    return {caught: mutant for caught in CAUGHT if (mutant := caught.mutant.find()) is not None}


@pytest.fixture(scope="module")
def outcomes(found: Mapping[Caught, Mutant], tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Return what came of each mutant, and of each case without one."""
    cases = cases_of()
    wanted = {mutant: [caught.case] for caught, mutant in found.items()}
    alone: dict[str, Outcome] = {}
    done = tried(
        wanted, cases, tmp_path_factory.mktemp("mutants"), jobs=2, alone=alone, start=environment
    )
    return {one.mutant: one for one in done}, alone


def test_there_are_twenty_and_no_two_are_the_same() -> None:
    assert len(CAUGHT) == len({caught.mutant for caught in CAUGHT}) == 20
    assert len({caught.mutant.module for caught in CAUGHT}) >= 2


@pytest.mark.parametrize(
    "caught",
    CAUGHT,
    ids=lambda caught: f"{caught.mutant.function}-{caught.mutant.kind}-{CAUGHT.index(caught)}",
)
def test_a_mutant_is_detected_by_its_case(
    caught: Caught, found: Mapping[Caught, Mutant], outcomes: Outcomes
) -> None:
    if caught not in found:
        reason = missing([caught.mutant], MADE_FOR)
        assert reason, f"torch {torch_version()} has no such mutant: {caught.mutant.text}"
        pytest.skip(reason)
    by_mutant, alone = outcomes
    assert alone[caught.case] is Outcome.PASS, (
        "the case fails without a mutant too, and shows nothing"
    )
    one = by_mutant[found[caught]]
    assert one.status == "killed", f"{one.status}: {caught.mutant.text}"

"""The canaries of health checks: two small cases with known verdicts, for each backend that a node has."""

from collections.abc import Mapping
from dataclasses import dataclass

from runner.core.case import Availability, Case
from runner.core.devices import is_accelerator
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.language.load import Suite, load_specs
from runner.language.read.files import SpecPath
from runner.run.fleet.offers import Offer
from runner.system import availability
from runner.system.data_dirs import folder

_WANTED: Mapping[str, tuple[Outcome, str]] = {"passes": (Outcome.PASS, ""), "fails": (Outcome.FAIL, "counter")}
"""Outcome and type of failure by the name of the spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """The cases of the canaries, by id."""

    suite: Suite
    cases: Mapping[str, Case]

    def of(self, offer: Offer) -> tuple[str, ...]:
        """Return those for a node: of its accelerator, or of its CPU."""
        there = [case for case in self.cases.values() if availability.of_case(case, offer.machine).availability is Availability.YES]
        wanted = [case for case in there if is_accelerator(case.device)] or there
        backend = wanted[0].backend if wanted else ""
        return tuple(case.id for case in wanted if case.backend == backend)


def read_canaries() -> Canaries:
    """Read the canaries of the package."""
    root = folder("templates") / "canaries"
    suite = load_specs([SpecPath(path=root / f"{name}.yaml", root=root.parent) for name in _WANTED], (), None)
    return Canaries(suite=suite, cases={case.id: case for case in suite.cases})


def problem_of(case: Case, result: CaseResult) -> str:
    """Return how the result of a canary differs from its known verdict; empty if it does not."""
    outcome, kind = _WANTED[case.name.rpartition("/")[2].partition("[")[0]]
    failed = {verdict.kind for verdict in result.failed}
    if result.outcome is outcome and result.failure_type == kind and failed == ({kind} if kind else set()):
        return ""
    return f"the canary '{case.id}' must be {outcome.label}, and it was {result.outcome.label}: {result.reason}"[:600]

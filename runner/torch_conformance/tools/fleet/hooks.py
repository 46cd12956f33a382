"""What the core asks for with ``--executor ray``: the check of its options, and the pipeline of a
run on a fleet.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import Execution
from torch_conformance.judge.waiving import Waivers
from torch_conformance.machine.capabilities import CaseAvailability, Machine
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.results import Redacted
from torch_conformance.plan import schedule
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.run.pipeline import CaseRunner, result_of_execution, result_of_unavailable
from torch_conformance.run.preparation import Prepared
from torch_conformance.tools.fleet import nodes
from torch_conformance.tools.fleet.fleet import Entry, Fleet
from torch_conformance.tools.fleet.health import problem_of_canary
from torch_conformance.tools.fleet.lab import check_fleet, read_lab
from torch_conformance.tools.fleet.link import GatewayLink

__all__ = ["FleetRunner", "check_fleet"]


class FleetRunner(CaseRunner):
    """Runs cases on the nodes of a lab; a context manager that closes the link to them."""

    checks_machine = False

    def __init__(
        self, prepared: Prepared, folder: RunFolder, cases: Sequence[Case], recorded: Sequence[Case]
    ) -> None:
        options, suite, waivers = prepared.options, prepared.suite, prepared.waivers
        lab = read_lab(options.lab) if options.lab is not None else None
        self._nodes = nodes.Nodes(prepared, cases, recorded, folder, lab)
        self._repro: Callable[[Case], str] = lambda case: ""
        settings = {
            "timeout_factor": options.timeout_factor,
            "jobs": options.jobs,
            "memory_limit": options.memory_limit,
            "packages": nodes.packages_of(cases),
        }
        link = GatewayLink(options.address or "")
        self._fleet = Fleet(
            link,
            self._nodes,
            folder.path,
            settings,
            self._result_of,
            self._problem_of_canary,
            self._unavailable,
        )
        # the fleet takes cases in place of jobs: what gives jobs to the executor is overridden here
        executor = cast(LocalExecutor, self._fleet)
        scheduling = prepared.scheduling
        super().__init__(
            options,
            suite,
            (),
            folder,
            1,
            waivers=waivers,
            scheduling=scheduling,
            make_executor=lambda settings: executor,
        )
        self._jobs.cases = self._nodes.cases_of_jobs

    @property
    def warnings(self) -> list[str]:
        """Also which nodes of the lab were not there."""
        return [*super().warnings, *self._nodes.missing()]

    def look_at_machine(self) -> Machine:
        """Ask every node for its facts; return those of the node that can run the most cases, for
        the header of the run.
        """
        self._is_looking = True
        self._fleet.connect()
        self._is_looking = False
        reference = self._nodes.reference()
        self.facts_of_files = reference.files
        return reference.machine

    def verdict_of(self, case: Case, machine: Machine) -> CaseAvailability:
        """Return whether any node can run a case."""
        return self._nodes.verdict(case)

    def run(
        self,
        cases: Sequence[Case],
        surroundings: Surroundings,
        repro: Callable[[Case], str],
        *,
        exclusively: bool = False,
    ) -> Iterator[Redacted]:
        """Run the cases, each on a node that can, and yield each result when a health check of its
        node passed after it.
        """
        self._repro = repro
        ordered = schedule.order(cases, self._scheduling.seconds, self._scheduling.seed)
        for result in self._fleet.run(
            Entry(case, exclusively, self._nodes.places(case), number)
            for number, case in enumerate(ordered)
        ):
            self._nodes.counted(result)
            yield result
        self.unrun = self._fleet.unrun

    def _result_of(self, execution: Execution) -> Redacted:
        """Return the result of a case, judged by the facts of its node."""
        case = self._jobs.cases[execution.job.name]
        offer = self._nodes.offers[execution.node]
        return self.result(
            case, execution, offer.surroundings, offer.machine, self._repro(case), offer.record
        )

    def _problem_of_canary(self, execution: Execution) -> str:
        case = self._jobs.cases[execution.job.name]
        surroundings = self._nodes.offers[execution.node].surroundings
        backends = self._nodes.canaries.backends.by_name
        result = result_of_execution(
            self._folder.path, backends, Waivers(), case, execution, surroundings, ""
        )
        return problem_of_canary(case, result)

    def _unavailable(self, case: Case, why: str) -> Redacted:
        return result_of_unavailable(
            case, CaseAvailability(Availability.NO, why), (), self._repro(case)
        )


if TYPE_CHECKING:
    from torch_conformance.run.preparation import FleetTool
    from torch_conformance.tools.fleet import hooks

    _CHECKED: FleetTool = hooks

"""The nodes of a run: their facts are asked once, and a node that is not what it should be is quarantined before it has a case."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from runner.core.case import Availability, Case
from runner.core.diagnostics import UsageError
from runner.core.options import RunOptions
from runner.execute.base import Execution, Job
from runner.execute.ray.executor import FleetExecutor
from runner.execute.ray.node_facts import machine_from_json
from runner.execute.ray.peers import Peer, State
from runner.execute.ray.source import PinnedSource
from runner.language.load import Suite
from runner.plan.schedule import SchedulingOptions
from runner.record.compatibility import machine_differences
from runner.record.run_folder import RunFolder
from runner.run.fleet.canaries import Canaries
from runner.run.fleet.health import Health
from runner.run.fleet.lab_check import LabCheck
from runner.run.fleet.offers import Offer, Suites, best, offer_of, requires
from runner.run.jobs import Jobs
from runner.run.pipeline import informed
from runner.system import availability
from runner.system.availability import Verdict
from runner.system.capabilities import Machine


@dataclass(kw_only=True)
class Nodes:
    """The nodes that a run uses, by name."""

    options: RunOptions
    suite: Suite
    selected: Sequence[Case]
    different: Sequence[Case]
    """One of all selected cases that require the same, in the same environment."""
    recorded: Sequence[Case]
    folder: RunFolder
    scheduling: SchedulingOptions
    canaries: Canaries
    lab: LabCheck
    executor: FleetExecutor
    offers: dict[str, Offer] = field(default_factory=dict)
    jobs: dict[str, Jobs] = field(default_factory=dict)
    """What makes the jobs of each node, with its facts."""
    _answers: dict[Hashable, tuple[Verdict, frozenset[str]]] = field(default_factory=dict)
    _alike: dict[Hashable, frozenset[str]] = field(default_factory=dict)
    _reference: str = ""
    health: dict[str, Health] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._suites = Suites(self.options, self.suite)

    def ask(self) -> None:
        """Ask every node for its facts; raise ``UsageError`` where none can be used."""
        peers = [peer for peer in self.executor.roster if peer.state is State.READY]
        machines = self._facts(peers)
        for peer in peers:
            if peer.state is State.READY:
                self._take_offer(peer, machines[peer.name], self._suites)
        if not self.offers:
            raise UsageError("no node of the lab can be used: " + "; ".join(self.executor.warnings))

    def facts_jobs(self, name: str) -> tuple[Machine, list[Job]]:
        """Return what files show of a node that joined, and the jobs that report its facts."""
        machine = machine_from_json(self.executor.roster[name].hello["machine"])
        self.jobs[name] = self._jobs_for(machine)
        return machine, self.jobs[name].for_facts()

    def admit(self, name: str, machine: Machine) -> Offer | None:
        """Take the offer of a node that joined while the run went on; None for one that is quarantined."""
        self._take_offer(self.executor.roster[name], machine, self._suites)
        self._answers.clear()
        self._alike.clear()
        return self.offers.get(name)

    def reference(self) -> Offer:
        """Return the node that can run the most cases, the first by name of several."""
        if not self._reference:
            counts = Counter(name for case in self.selected for name in self.places(case))
            self._reference = max(sorted(self.offers), key=lambda name: counts[name])
        return self.offers[self._reference]

    def verdict(self, case: Case) -> Verdict:
        """Return whether any node can run a case, and why none can."""
        return self._answer(case)[0]

    def places(self, case: Case) -> frozenset[str]:
        """Return the nodes that can run a case."""
        return self._answer(case)[1]

    def like(self, facts: Mapping[str, str]) -> frozenset[str]:
        """Return the nodes that are like a machine: attempts of one case are compared with each other, so they run on like nodes."""
        key = tuple(sorted(facts.items()))
        if key not in self._alike:
            self._alike[key] = frozenset(name for name, offer in self.offers.items() if offer.is_like_node(facts))
        return self._alike[key]

    def _answer(self, case: Case) -> tuple[Verdict, frozenset[str]]:
        """Return what the nodes say of a case; once for all cases that require the same, where no node reads specs for another torch."""
        key = None if any(offer.cases is not None for offer in self.offers.values()) else requires(case)
        if key is None or key not in self._answers:
            verdicts = {name: offer.verdict(case) for name, offer in self.offers.items()}
            places = frozenset(name for name, found in verdicts.items() if found.availability is not Availability.NO)
            found = best(verdicts.values()), places
            if key is None:
                return found
            self._answers[key] = found
        return self._answers[key]

    def canaries_of(self, offer: Offer) -> tuple[str, ...]:
        """Return the canaries of a node; raise ``UsageError`` where it can run none."""
        found = self.canaries.of(offer)
        if not found:
            verdict = best(availability.of_case(case, offer.machine) for case in self.canaries.cases.values())
            raise UsageError(f"no canary can run there: {verdict.reason}")
        return found

    def _facts(self, peers: Sequence[Peer]) -> dict[str, Machine]:
        """Let a worker of each node report the facts of its machine, at the same time."""
        machines = {peer.name: machine_from_json(peer.hello["machine"]) for peer in peers}
        self.jobs = {name: self._jobs_for(machine) for name, machine in machines.items()}
        problems: dict[str, str] = {}
        for execution in self.executor.run(PinnedSource({name: jobs.for_facts() for name, jobs in self.jobs.items()})):
            if execution.unrun:
                continue
            try:
                machines[execution.node] = informed_by(machines[execution.node], execution)
            except UsageError as error:
                problems[execution.node] = str(error)
        for name, problem in problems.items():
            self.executor.quarantine(name, problem)
        return machines

    def _jobs_for(self, machine: Machine) -> Jobs:
        cases = [*self.different, *self.canaries.cases.values()]
        return Jobs(self.options, self.scheduling, self.suite.backends.by_name, self.folder, cases, machine, self.recorded)

    def _take_offer(self, peer: Peer, machine: Machine, suites: Suites) -> None:
        """Take the offer of a node; one that is not what the lab, or a run that is resumed, needs is quarantined."""
        try:
            offer = offer_of(peer.node, machine, peer.hello["provenance"], suites)
            self.lab.require(offer, peer.node.labels)
            self._require_like(offer)
            self.canaries_of(offer)
        except UsageError as error:
            self.executor.quarantine(peer.name, str(error))
            return
        self.jobs[peer.name].inform(machine)
        gpus = {"kind": "gpus", "gpus": machine.gpus or 0, "gpu_memory": machine.gpu_memory or 0}
        self.executor.roster.send(peer, gpus)
        self.offers[peer.name], self.health[peer.name] = offer, Health()

    def _require_like(self, offer: Offer) -> None:
        """Raise ``UsageError`` for a node that is like no machine of the run that is resumed."""
        header = self.folder.header
        recorded = [*self.folder.finished, *(result for made in self.folder.attempts.values() for result in made)]
        if header is not None and not offer.is_like(header, recorded):
            differs = machine_differences(offer.environment, header.environment)
            words = "; ".join(difference.between("on the node", "in the run") for difference in differs[:3])
            raise UsageError(f"it is like no machine of the run that is resumed: {words}")


def informed_by(machine: Machine, execution: Execution) -> Machine:
    """Return the machine of a node with the facts of a job; raise ``UsageError`` where it reported none that can be read."""
    try:
        return informed(machine, execution)
    except (AttributeError, TypeError, ValueError) as error:  # not the form that facts.collect writes
        raise UsageError(f"its facts cannot be read: {type(error).__name__}: {error}") from error

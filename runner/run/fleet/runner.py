"""The pipeline of a run on a fleet: like ``CaseRunner``, with a machine, and a plan, for each node."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from runner.core.case import Availability, Case
from runner.core.conditions import Surroundings
from runner.core.options import RunOptions
from runner.core.results import CaseResult
from runner.execute.base import Execution, ExecutorSettings, Job
from runner.execute.ray.executor import FleetExecutor
from runner.execute.ray.link import Link
from runner.execute.ray.peers import FleetSettings
from runner.execute.services import named_servers
from runner.judge.waivers import Waivers
from runner.language.expand.cases import surroundings
from runner.language.load import Suite
from runner.language.read.templates import TemplateError
from runner.plan import schedule
from runner.record.run_folder import RunFolder
from runner.run.case_script import write_script
from runner.run.fleet.canaries import problem_of, read_canaries
from runner.run.fleet.health import Entry, Held
from runner.run.fleet.lab_check import LabCheck
from runner.run.fleet.newcomers import Newcomers
from runner.run.fleet.nodes import Nodes
from runner.run.fleet.offers import different_of, facts_of_glance, packages_of
from runner.run.fleet.placement import Placement, Unavailable
from runner.run.fleet.places import Places
from runner.run.jobs import exclusive
from runner.run.pipeline import CaseRunner
from runner.run.results import Results, result_of_unavailable
from runner.run.shared_workers import may_be_of_others, why_retried
from runner.system.availability import Verdict
from runner.system.capabilities import Machine
from runner.system.redaction import redacted_result


class FleetRunner(CaseRunner):
    """Runs cases on the nodes of a lab; a context manager that closes the executor."""

    checks_machine = False

    def __init__(
        self,
        options: RunOptions,
        suite: Suite,
        waivers: Waivers,
        cases: Sequence[Case],
        folder: RunFolder,
        machine: Machine,
        scheduling: schedule.SchedulingOptions,
        recorded: Sequence[Case],
        link: Link,
        lab: LabCheck,
    ) -> None:
        different = different_of(cases)
        super().__init__(options, suite, waivers, different, folder, 1, machine, scheduling, recorded)
        settings = ExecutorSettings(folder=folder.path, workers=1, threads=1)
        self._executor = self._fleet = FleetExecutor(settings, _settings(options, different), link)
        self._canaries = read_canaries()
        self._nodes = Nodes(
            options=options,
            suite=suite,
            selected=tuple(cases),
            different=different,
            recorded=tuple(recorded),
            folder=folder,
            scheduling=scheduling,
            canaries=self._canaries,
            lab=lab,
            executor=self._fleet,
        )
        no_waivers = dataclasses.replace(waivers, files=dataclasses.replace(waivers.files, waivers=()))
        self._newcomers = Newcomers(self._nodes)
        self._lab = lab
        self._judges = Results(folder.path, self._canaries.suite.backends.by_name, no_waivers)
        self._placement: Placement | None = None
        self._numbers = itertools.count(folder.next_number())
        self.unrun: dict[str, str] = {}
        there = folder.header.environment if folder.header is not None else {}
        self._earlier = {case_id: made[0].node or there for case_id, made in folder.attempts.items() if made}
        self._places = Places(self._nodes, self._earlier, options.repeat)

    @property
    def warnings(self) -> list[str]:
        """Also which nodes of the lab were not there, nor joined later."""
        return [*super().warnings, *self._lab.missing(self._nodes.offers.values())]

    @property
    def notes(self) -> list[str]:
        """Also which nodes joined while the run went on."""
        return [*super().notes, *self._newcomers.notes()]

    def look_at_machine(self) -> Machine:
        """Ask every node for its facts; return those of the node that can run the most cases, for the header of the run."""
        self._is_looking = True
        self._fleet.connect()
        self._nodes.ask()
        self._is_looking = False
        return self._nodes.reference().machine

    def verdict_of(self, case: Case, machine: Machine) -> Verdict:
        """Return whether any node can run a case."""
        return self._nodes.verdict(case)

    def facts_of_files(self) -> Mapping[str, str]:
        """Return the facts of the reference node that are recorded of every machine."""
        return facts_of_glance(self._nodes.reference().machine)

    def run(self, cases: Sequence[Case], known: Surroundings, repro: Callable[[Case], str], *, alone: bool = False) -> Iterator[CaseResult]:
        """Run the cases, each on a node that can, and yield each result when a health check of its node passed after it."""
        ordered = schedule.order(cases, self._scheduling.seconds, self._scheduling.seed, self._scheduling.ranks)
        entries = (Entry(case, alone, self._places.of(case), number) for number, case in enumerate(ordered))
        canaries = {name: self._nodes.canaries_of(offer) for name, offer in self._nodes.offers.items()}
        placement = Placement(entries, self._made, self._canary, canaries, self._nodes.health, self._fleet.quarantine, self._newcomers)
        self._placement = placement
        for execution in self._fleet.run(placement):
            self._take_execution(placement, execution, repro)
            yield from self._released(placement, repro)
        yield from self._released(placement, repro)
        self.unrun.update(placement.unrun)

    def _made(self, entry: Entry, node: str) -> Job | Unavailable:
        """Return the job of a case for a node, planned with the facts of the node."""
        offer = self._nodes.offers[node]
        case = offer.case(entry.case)
        assert case is not None
        alone = entry.alone or bool(entry.retry_of)
        try:
            job = self._nodes.jobs[node].for_case(case, offer.known, number=next(self._numbers), alone=alone)
        except TemplateError as error:
            return Unavailable(f"node {node} lacks a fact: {error}")
        if entry.retry_of:
            self._retries.add(job.name, case.id, entry.retry_of)
        return exclusive(job) if entry.alone else job

    def _canary(self, node: str, case_id: str) -> Job:
        number = next(self._numbers)
        job = self._nodes.jobs[node].for_case(self._canaries.cases[case_id], self._nodes.offers[node].known, number=number, alone=True)
        return dataclasses.replace(job, name=f"canary {node} {job.name}")

    def _take_execution(self, placement: Placement, execution: Execution, repro: Callable[[Case], str]) -> None:
        if execution.job.plan is None:
            self._admit(placement, execution)
            return
        canary = placement.canary_of(execution.job.name)
        if canary is not None:
            self._take_canary(placement, *canary, execution)
            return
        entry = placement.entry_of(execution.job.name)
        if entry is None:
            return
        offer = self._nodes.offers[execution.node]
        case = offer.case(entry.case)
        assert case is not None
        result = self._results.of(case, execution, offer.known, repro(case))
        result = dataclasses.replace(result, node=offer.record)
        here = surroundings(self._backends[case.backend], offer.known, case.target)
        write_script(case, here, offer.machine, result, self._folder.path)
        if may_be_of_others(result, execution):
            self._executor.retire(execution.worker)
        if reason := why_retried(result, execution):
            like = entry.places & self._nodes.like(offer.record)
            placement.waiting.put(dataclasses.replace(entry, retry_of=reason, places=like))
            return
        noted = redacted_result(self._retries.noted(result, execution.job.name))
        self._nodes.health[execution.node].held.append(Held(entry, noted))

    def _admit(self, placement: Placement, execution: Execution) -> None:
        """Use a node that joined, if its facts are complete and as they should be. A health check is the first that it gets."""
        offer = self._newcomers.took(execution)
        if offer is not None:
            placement.admit(offer.name, self._nodes.canaries_of(offer), functools.partial(self._places.with_newcomer, offer.name))

    def _take_canary(self, placement: Placement, node: str, case_id: str, execution: Execution) -> None:
        case = self._canaries.cases[case_id]
        result = self._judges.of(case, execution, self._nodes.offers[node].known, "")
        placement.took(node, case_id, problem_of(case, result))

    def _released(self, placement: Placement, repro: Callable[[Case], str]) -> Iterator[CaseResult]:
        results, placement.released = placement.released, []
        for result in results:
            self._earlier.setdefault(result.case_id, result.node)
            yield result
        missing, placement.unavailable = placement.unavailable, []
        for case, why in missing:
            yield result_of_unavailable(case, Verdict(Availability.NO, why), (), repro(case))

    def _case_of(self, job: str) -> Case | None:
        return self._placement.case_of(job) if self._placement is not None else None


def _settings(options: RunOptions, cases: Sequence[Case]) -> FleetSettings:
    return FleetSettings(
        isolation=options.isolation,
        timeout_factor=options.timeout_factor,
        jobs=options.jobs,
        memory_limit=options.memory_limit,
        servers={name: (address.host, address.port) for name, address in named_servers(options.service).items()},
        object_cache=options.object_cache is not None,
        caches=not options.no_kept,
        packages=packages_of(cases),
    )

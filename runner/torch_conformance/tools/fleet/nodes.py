"""What each node of a fleet offers: facts, asked once, from which it follows which cases it can
run, and how they are planned.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.language.load import load, surroundings_of
from torch_conformance.machine import capabilities
from torch_conformance.machine.capabilities import CaseAvailability, Machine
from torch_conformance.machine.installed_torch import InstalledTorch, installed_torch, minor
from torch_conformance.machine.redaction import redacted_texts
from torch_conformance.model import codec
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import Redacted
from torch_conformance.plan.selection import without_benches
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.comparison import machine_differences
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.run.pipeline import Jobs, informed
from torch_conformance.run.preparation import Prepared
from torch_conformance.tools.fleet.health import canaries_of, read_canaries
from torch_conformance.tools.fleet.lab import NAME, Lab
from torch_conformance.tools.fleet.link import Node

_NOT_RECORDED = {"torch_root", "answers", "cpu"}


@dataclass(kw_only=True)
class Offer:
    """One node, and what it reported."""

    node: Node
    provenance: Mapping[str, str]
    jobs: Jobs
    """What makes the jobs of the node, with its facts."""
    files: Mapping[str, str]
    """The facts that files show of its machine."""
    cases: Mapping[str, Case] = field(default_factory=dict)
    """The cases as its torch expands them, by id; without those that are other cases then."""
    canaries: Sequence[Case] = ()
    """Those that it can run."""

    @property
    def machine(self) -> Machine:
        """Its machine, with the facts that its workers reported until now."""
        return self.jobs.machine

    def take_facts(self, execution: Execution) -> None:
        """Take the facts of a job; raise ``UsageError`` where it has none that can be read."""
        with reading("its facts"):  # of the form that facts.collect writes
            self.jobs.machine = informed(self.machine, execution)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The facts for conditions."""
        return replace(
            surroundings_of(self.machine.torch, self.machine), python=self.machine.python
        )

    @cached_property
    def record(self) -> Mapping[str, str]:
        """What results say of it."""
        facts = _texts(self.machine)
        facts = {name: facts[name] for name in facts.keys() - _NOT_RECORDED}
        return {**self.provenance, **redacted_texts(facts), "name": self.node.name}

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The facts of its machine as the header of a run has them."""
        return redacted_texts({**self.files, **_texts(self.machine)})

    def is_like(self, facts: Mapping[str, str]) -> bool:
        """Whether its machine is like that of a node, by the facts that results record."""
        both = self.environment.keys() & facts.keys()
        return not machine_differences(
            {name: self.environment[name] for name in both}, {name: facts[name] for name in both}
        )

    def availability(self, case: Case) -> CaseAvailability:
        """Return whether it can run a case, and why not."""
        if case.id in self.cases:
            return capabilities.availability_of(self.cases[case.id], self.machine)
        why = f"it is another case with torch {self.machine.torch}"
        return CaseAvailability(Availability.NO, why, "torch")


@dataclass(eq=False)
class Nodes:
    """The nodes that a run uses, by name."""

    _prepared: Prepared
    _cases: Sequence[Case]
    _recorded: Sequence[Case]
    _folder: RunFolder
    _lab: Lab | None

    def __post_init__(self) -> None:
        self.canaries = read_canaries()
        self.offers: dict[str, Offer] = {}
        """The nodes that can be used."""
        self.cases_of_jobs: dict[str, Case] = {}
        """The case of each job, by the job's name, for all nodes."""
        self._numbers = itertools.count(self._folder.next_number())
        self._cases_of_torch: dict[tuple[str, str], Mapping[str, Case]] = {}
        header = self._folder.header
        self._first_attempts: dict[str, Mapping[str, str]] = {
            case_id: attempts[0].node or (header.environment if header else {})
            for case_id, attempts in self._folder.attempts.items()
            if attempts
        }
        """The machine of the first attempt of cases, by id: attempts of one case are compared, so
        they run on nodes that are alike.
        """

    # -- asking ------------------------------------------------------------------------------------

    def offer_of(self, node: Node, began: Json) -> Offer:
        """Return what a node offers by what its agent answered to ``begin``; raise ``ValueError``
        for an answer of another form.
        """
        jobs = Jobs(
            options=self._prepared.options,
            memory_limit=self._prepared.scheduling.memory_limit,
            backends=self._prepared.suite.backends.by_name,
            folder=self._folder.path,
            waiting=[*self._cases, *self.canaries.cases],
            recorded=self._recorded,
            machine=codec.decode(Machine, began["machine"], "machine"),
            cases=self.cases_of_jobs,
        )
        return Offer(
            node=node,
            jobs=jobs,
            provenance=codec.decode(Mapping[str, str], began["provenance"], "provenance"),
            files=codec.decode(Mapping[str, str], began["files"], "files"),
        )

    def admit(self, offer: Offer) -> None:
        """Use a node that reported all of its facts; raise ``UsageError`` where it is not what the
        lab, or a run that is resumed, needs.
        """
        machine = offer.machine
        offer.cases = self._for_torch(machine)
        if self._lab is not None:
            self._lab.node(offer.node.labels.get(NAME, "")).require(machine)
        if (header := self._folder.header) is not None:  # a run that is resumed
            attempts = itertools.chain.from_iterable(self._folder.attempts.values())
            machines = [result.node for result in (*self._folder.finished, *attempts)]
            differences = machine_differences(offer.environment, header.environment)
            if differences and not any(facts and offer.is_like(facts) for facts in machines):
                words = "; ".join(
                    difference.between("on the node", "in the run")
                    for difference in differences[:3]
                )
                raise UsageError(f"it is like no machine of the run that is resumed: {words}")
        offer.canaries = canaries_of(self.canaries, machine)
        if not offer.canaries:
            verdicts = [capabilities.availability_of(case, machine) for case in self.canaries.cases]
            raise UsageError(f"no canary can run there: {_best(verdicts).reason}")
        self.offers[offer.node.name] = offer

    def missing(self) -> Iterator[str]:
        """Yield which nodes of the lab did not join, or cannot be used."""
        usable = Counter(offer.node.labels.get(NAME) for offer in self.offers.values())
        for name, entry in self._lab.nodes.items() if self._lab is not None else ():
            if (count := usable[name]) < entry.count:
                yield (
                    f"{entry.positions['']}: the lab has {entry.count} of {name}, and {count} can "
                    "be used"
                )

    def _for_torch(self, machine: Machine) -> Mapping[str, Case]:
        """Return the cases as the torch of a machine expands them, by id, where they are the cases
        that were selected.
        """
        version, git = machine.torch or "", str(machine.facts.get("torch_git", ""))
        mine = installed_torch()
        if mine is not None and mine.version == version and mine.git in ("", git or mine.git):
            return {case.id: case for case in self._cases}
        if (version, git) not in self._cases_of_torch:
            # its source is not here: names come from the table of its minor version
            torch = InstalledTorch(
                version=version,
                minor=minor(version),
                root=Path("/nonexistent"),
                builds=machine.builds,
                git=git,
            )
            options, surroundings = self._prepared.options, surroundings_of(version, None)
            try:
                suite = load(options.paths, options.backends, surroundings, torch)
            except (InvalidSpecs, OSError) as error:
                raise UsageError(
                    f"the specs cannot be read for torch {version}: {str(error).splitlines()[0]}"
                ) from error
            cases = suite.cases if options.bench else map(without_benches, suite.cases)
            digests = {case.id: digest_of(case) for case in self._cases}
            self._cases_of_torch[version, git] = {
                case.id: case for case in cases if digest_of(case) == digests.get(case.id)
            }
        return self._cases_of_torch[version, git]

    # -- placing -----------------------------------------------------------------------------------

    def reference(self) -> Offer:
        """Return the node that can run the most cases, the first by name of several."""
        counts = Counter(name for case in self._cases for name in self._able(case))
        return self.offers[max(sorted(self.offers), key=lambda name: counts[name])]

    def verdict(self, case: Case) -> CaseAvailability:
        """Return whether any node can run a case, and why none can."""
        return _best([offer.availability(case) for offer in self.offers.values()])

    def places(self, case: Case) -> frozenset[str]:
        """Return the nodes for a case that begins to wait."""
        places = self._able(case)
        if case.id in self._first_attempts:
            return places & self._like(self._first_attempts[case.id])
        if self._prepared.options.repeat == 1 or not places:
            return places
        kinds = {places & self._like(self.offers[name].environment) for name in places}
        return sorted(kinds, key=sorted)[sum(case.id.encode()) % len(kinds)]

    def counted(self, result: Redacted) -> None:
        """Record the machine of a result that counts."""
        if result.node:
            self._first_attempts.setdefault(result.case_id, result.node)

    def _like(self, facts: Mapping[str, str]) -> frozenset[str]:
        return frozenset(name for name, offer in self.offers.items() if offer.is_like(facts))

    def _able(self, case: Case) -> frozenset[str]:
        return frozenset(
            name
            for name, offer in self.offers.items()
            if offer.availability(case).availability is not Availability.NO
        )

    # -- planning ----------------------------------------------------------------------------------

    def job_of(self, case: Case, name: str) -> Job:
        """Return the job of a case, or of a canary, for a node, planned with its facts; raise
        ``TemplateError`` for a fact that it lacks.
        """
        offer = self.offers[name]
        mine = offer.cases.get(case.id, case)
        return offer.jobs.for_case(mine, offer.surroundings, number=next(self._numbers))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise ``UsageError`` for what a node answered and the body cannot read."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def packages_of(cases: Sequence[Case]) -> list[str]:
    """Return the top-level packages that cases may require, with other names."""
    requirements = itertools.chain.from_iterable(case.requires for case in cases)
    arguments = {(requirement.argument or "").rpartition("=")[2] for requirement in requirements}
    return sorted({argument.replace(":", ".").partition(".")[0] for argument in arguments})


def _texts(machine: Machine) -> dict[str, str]:
    return {str(fact): str(value) for fact, value in machine.facts.items() if value is not None}


def _best(verdicts: Sequence[CaseAvailability]) -> CaseAvailability:
    """Return whether any node can run a case; else why none can: each reason once."""
    order = [Availability.YES, Availability.UNKNOWN, Availability.NO]
    best = min(verdicts, key=lambda verdict: order.index(verdict.availability))
    if best.availability is not Availability.NO:
        return best
    return replace(best, reason="; ".join(dict.fromkeys(verdict.reason for verdict in verdicts)))

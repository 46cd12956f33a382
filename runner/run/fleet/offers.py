"""What each node offers: a table of facts, asked once, from which it follows which cases it can run. Nothing is sent before."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.core import devices
from runner.core.case import Availability, Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.header import RunHeader
from runner.core.options import RunOptions
from runner.core.results import CaseResult
from runner.execute.ray.labels import SPLIT
from runner.execute.ray.link import Node
from runner.language.load import Suite, load, surroundings_of
from runner.plan.selection import without_benches
from runner.plan.worker_plan import digest_of
from runner.record.compatibility import machine_differences
from runner.system import availability
from runner.system.availability import Verdict
from runner.system.capabilities import Machine
from runner.system.installed_torch import InstalledTorch, installed_torch, minor
from runner.system.redaction import redacted_texts

_NOT_RECORDED = ("torch_root", "answers", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One node."""

    name: str
    machine: Machine
    known: Surroundings
    cases: Mapping[str, Case] | None
    """The cases as its torch expands them, by id; None where it has the torch that the runner read the specs for."""
    digests: dict[str, str] = field(default_factory=dict)
    record: Mapping[str, str] = field(default_factory=dict)
    """What results say of it."""
    whole_gpus: int = 0
    """With ``split: gpu`` the GPUs of the whole node, of which this share has one; else 0."""

    @property
    def environment(self) -> dict[str, str]:
        """The facts of its machine as the header of a run has them."""
        return redacted_texts({**facts_of_glance(self.machine), **_texts(self.machine)})

    def is_like(self, header: RunHeader, recorded: Iterable[CaseResult]) -> bool:
        """Whether it is like the machine of a run, or like one of the nodes that its results name."""
        if not machine_differences(self.environment, header.environment):
            return True
        nodes = {tuple(sorted(result.node.items())) for result in recorded if result.node}
        return any(self.is_like_node(dict(node)) for node in nodes)

    def is_like_node(self, node: Mapping[str, str]) -> bool:
        """Whether its machine is like that of a node, by the facts that results record."""
        mine = self.environment
        return not machine_differences({name: mine.get(name, "") for name in mine if name in node}, {n: node[n] for n in node if n in mine})

    def case(self, case: Case) -> Case | None:
        """Return a case as this node runs it; None where that is another case than the one that was selected."""
        if self.cases is None:
            return case
        mine = self.cases.get(case.id)
        return mine if mine is not None and digest_of(mine) == digest_of(case) else None

    def verdict(self, case: Case) -> Verdict:
        """Return whether it can run a case, and why not."""
        mine = self.case(case)
        if mine is None:
            return Verdict(Availability.NO, f"it is another case with torch {self.machine.torch}", "torch")
        found = availability.of_case(mine, self.machine)
        if found.capability == "gpus" and found.availability is Availability.NO and self._has_as_whole(mine):
            name = self.name.partition(".")[0]
            to_write = f"write 'split: none' for {name} in the file of the lab"
            hint = f"{name} has {self.whole_gpus}, and 'split: gpu' gives each case one ({to_write})"
            return replace(found, reason=f"{found.reason}: {hint}")
        return found

    def _has_as_whole(self, case: Case) -> bool:
        """Whether the whole node, of which this is a share, could run a case."""
        whole = replace(self.machine, gpus=self.whole_gpus)
        return self.whole_gpus > 0 and availability.of_case(case, whole).availability is not Availability.NO


def offer_of(node: Node, machine: Machine, provenance: Mapping[str, str], suites: "Suites") -> Offer:
    """Return the offer of a node that reported its facts; raise ``UsageError`` where the specs cannot be read for its torch."""
    name, is_of_gpus = node.name, node.labels.get(SPLIT) == "gpu"
    known = replace(surroundings_of(machine.torch, machine), python=machine.python)
    facts = {fact: value for fact, value in _texts(machine).items() if fact not in _NOT_RECORDED}
    record = {**redacted_texts(facts), **{fact: str(value) for fact, value in provenance.items()}, "name": name}
    return Offer(
        name=name, machine=machine, known=known, cases=suites.for_torch(machine), record=record, whole_gpus=node.shares if is_of_gpus else 0
    )


def facts_of_glance(machine: Machine) -> dict[str, str]:
    """Return the facts of a machine that its files show."""
    python = ".".join(map(str, machine.python))
    known = {"python": python, "torch": machine.torch or "", **{name: version or "" for name, version in machine.builds.items()}}
    return {name: value for name, value in known.items() if value}


def _texts(machine: Machine) -> dict[str, str]:
    return {str(fact): str(value) for fact, value in machine.facts.items() if value is not None}


class Suites:
    """The specs as each torch of the lab expands them, read once for each."""

    def __init__(self, options: RunOptions, suite: Suite) -> None:
        self._options = options
        self._suite = suite
        self._mine = installed_torch()
        self._found: dict[tuple[str, str], Mapping[str, Case]] = {}

    def for_torch(self, machine: Machine) -> Mapping[str, Case] | None:
        """Return the cases for the torch of a machine, by id; None where it is the runner's."""
        version, git = machine.torch or "", str(machine.facts.get("torch_git", ""))
        if self._mine is not None and self._mine.version == version and self._mine.git in ("", git or self._mine.git):
            return None
        if (version, git) not in self._found:
            self._found[version, git] = self._read(machine, version, git)
        return self._found[version, git]

    def _read(self, machine: Machine, version: str, git: str) -> Mapping[str, Case]:
        # its source is not here: names come from the table of its minor version
        torch = InstalledTorch(version=version, minor=minor(version), root=Path("/nonexistent"), builds=machine.builds, git=git)
        try:
            suite = load(self._options.paths, self._options.backends, surroundings_of(version, None), torch)
        except (InvalidSpecs, OSError) as error:
            raise UsageError(f"the specs cannot be read for torch {version}: {str(error).splitlines()[0]}") from error
        bench = self._options.bench
        return {case.id: case if bench else without_benches(case) for case in suite.cases}


def best(verdicts: Iterable[Verdict]) -> Verdict:
    """Return whether any node can run a case; else why none can: each reason once."""
    found = list(verdicts)
    for wanted in (Availability.YES, Availability.UNKNOWN):
        if (there := next((one for one in found if one.availability is wanted), None)) is not None:
            return there
    reasons = "; ".join(dict.fromkeys(one.reason for one in found))
    return Verdict(Availability.NO, reasons or "no node of the lab is usable", found[0].capability if found else "")


def requires(case: Case) -> Hashable:
    """Return what decides whether a machine can run a case: equal for cases that require the same."""
    return case.target, case.missing_names, tuple((one.name, one.argument) for one in case.requires)


def different_of(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Return one of all cases that require the same, in the same environment: a runner asks what they need once."""
    found = {(requires(case), case.device, case.body.compiles, repr(case.body.settings.env)): case for case in reversed(cases)}
    return tuple(found.values())


def packages_of(cases: Sequence[Case]) -> tuple[str, ...]:
    """Return the top-level packages that cases require."""
    found: set[str] = set()
    for requirement in (one for case in cases for one in case.requires):
        argument = requirement.argument or ""
        if requirement.name in ("module", "call"):
            found.add(argument.replace(":", ".").split(".")[0])
        elif requirement.name == "device":
            found.add(devices.VendorDevice.parse(argument).module.partition(".")[0])
    return tuple(sorted(filter(None, found)))

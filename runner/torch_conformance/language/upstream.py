"""The committed list of upstream tests that the specs restate, the cases that cover each of their
instances, and what our specs claim in the place of each of their assertions.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch_conformance.language.backends import Backends
from torch_conformance.language.read import yaml_source
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import Diagnostic, one_of, unknown_word

LIST = Path(__file__).parent / "data" / "upstream.json"


@dataclass(frozen=True)
class UpstreamTest:
    """One test: its row in the list, its name without values, its parameters, and the values of
    each instance as in an id.
    """

    row: int
    file: str
    name: str
    parameters: tuple[str, ...]
    instances: tuple[str, ...]
    """``cpu,float32,false``; one empty text for a test without parameters."""

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The id of each instance, as in ``covers`` of a spec."""
        return tuple(f"{self.name}[{values}]" if values else self.name for values in self.instances)

    def is_of_another_device(self, values: str, device: str) -> bool:
        """Whether the values are those of an instance except for the device, which is ``device``: a
        device that upstream does not test.
        """
        parts = values.split(",")
        if "device" not in self.parameters or len(parts) != len(self.parameters):
            return False
        place = self.parameters.index("device")
        of_instances = (instance.split(",") for instance in self.instances)
        others = {(*instance[:place], *instance[place + 1 :]) for instance in of_instances}
        return (
            parts[place] in (device, device.split(":")[0])
            and (*parts[:place], *parts[place + 1 :]) in others
        )


@dataclass(frozen=True)
class Upstream:
    """The whole list, in order."""

    tests: tuple[UpstreamTest, ...]

    @cached_property
    def by_name(self) -> Mapping[str, UpstreamTest]:
        """Each test by its name."""
        return {test.name: test for test in self.tests}

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of all instances."""
        return frozenset(identity for test in self.tests for identity in test.ids)

    @cached_property
    def files(self) -> frozenset[str]:
        """The files of the list; tests of other files are not checked."""
        return frozenset(test.file for test in self.tests)

    def problem(self, entry: str, device: str) -> Diagnostic | None:
        """Return the problem of an entry of ``covers`` that is not in the list; None if it is
        valid.
        """
        if entry in self.ids or entry.split("::")[0] not in self.files:
            return None
        name, bracket, values = entry.partition("[")
        if name not in self.by_name:
            file, _, rest = name.partition("::")
            tests = [test.name for test in self.tests if test.file == file]
            same = [
                test for test in tests if test.split("::")[-1] == rest.split("::")[-1]
            ]  # in another class
            return unknown_word(
                "upstream-test", name, same[:1] or tests, cutoff=0.0 if same else 0.6
            )
        test = self.by_name[name]
        if not test.parameters:
            return Diagnostic.of("upstream-test-without-instances", name=name)
        if not bracket:
            return Diagnostic.of("no-upstream-instance", name=name, instances=one_of(test.ids))
        if values.endswith("]") and test.is_of_another_device(values[:-1], device):
            return None
        return unknown_word("upstream-instance", entry, test.ids)


@functools.cache
def load() -> Upstream:
    """Read the committed list."""
    tests = []
    for row in json.loads(LIST.read_text("utf-8"))["tests"]:
        name = "::".join(part for part in (row["file"], row["class"], row["test"]) if part)
        tests.append(
            UpstreamTest(
                row["row"], row["file"], name, tuple(row["parameters"]), tuple(row["instances"])
            )
        )
    return Upstream(tuple(tests))


# -- what our specs claim of each seed test --------------------------------------------------------

SAME = "same"
KINDS = (SAME, "tighter", "replaced", "looser", "missing")
"""How a claim compares with that of the seed, the weakest last."""


@dataclass(frozen=True)
class Comparison:
    """An assertion of a seed test, or a condition of it, and what our specs have in its place."""

    kind: str
    seed: str
    ours: str = ""
    on: tuple[str, ...] = ()
    """The backends whose cases have it; empty for all."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Comparison":
        """Read one of ``{KIND: SEED, ours: ..., on: [...]}``."""
        (kind,) = entry.keys() - {"ours", "on"}
        return cls(kind, entry[kind], entry.get("ours", ""), tuple(entry.get("on", ())))


@dataclass(frozen=True)
class SeedTest:
    """A seed test, compared with our specs."""

    specs: tuple[str, ...]
    reason: str
    assertions: tuple[Comparison, ...]
    conditions: tuple[Comparison, ...] = ()

    def differences(
        self, covering: Iterable[Case], backends: Backends
    ) -> list[tuple[Comparison, list[str]]]:
        """Return the assertions that are not the same, each with the backends of our cases for
        which it holds.
        """
        covering_backends = dict.fromkeys(
            case.backend for case in covering if f"{case.area}/{case.name}" in self.specs
        )
        names_of = {name: backends.by_name[name].names for name in covering_backends}
        pairs = [
            (
                assertion,
                [
                    name
                    for name in covering_backends
                    if not assertion.on or not names_of[name].isdisjoint(assertion.on)
                ],
            )
            for assertion in self.assertions
            if assertion.kind != SAME
        ]
        return [(assertion, names) for assertion, names in pairs if names]


@functools.cache
def seeds() -> tuple[Mapping[str, SeedTest], Mapping[str, Sequence[Comparison]]]:
    """Return each seed test by its name, and the conditions of all tests of each file."""
    data = yaml_source.read(folder("specs") / "_seeds.yaml").data

    def read(entries: Iterable[Mapping[str, Any]]) -> tuple[Comparison, ...]:
        return tuple(map(Comparison.of, entries))

    tests = {
        name: SeedTest(
            specs=tuple(row["specs"]),
            reason=row["reason"],
            assertions=read(row["assertions"]),
            conditions=read(row.get("conditions", ())),
        )
        for name, row in data["tests"].items()
    }
    return tests, {file: read(entries) for file, entries in data["files"].items()}


# -- coverage --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Covered:
    """A test with the cases that cover each of its instances (by id, in order)."""

    test: UpstreamTest
    cases: Mapping[str, tuple[Case, ...]]

    @property
    def missing(self) -> tuple[str, ...]:
        """The ids that no case covers."""
        return tuple(identity for identity, cases in self.cases.items() if not cases)

    @property
    def covering(self) -> tuple[Case, ...]:
        """The cases that cover an instance of it, each once."""
        every = (case for cases in self.cases.values() for case in cases)
        return tuple({case.id: case for case in every}.values())

    @property
    def specs(self) -> Mapping[str, int]:
        """The specs that cover instances of it, with the number of their cases."""
        return Counter(case.spec for case in self.covering)


def coverage(cases: Iterable[Case], upstream: Upstream) -> list[Covered]:
    """Return the coverage of each test of the list, in its order, whether or not a case can run
    here.
    """
    by_id: dict[str, list[Case]] = {}
    for case in cases:
        for entry in dict.fromkeys(case.covers):
            by_id.setdefault(entry, []).append(case)
    return [
        Covered(test, {identity: tuple(by_id.get(identity, ())) for identity in test.ids})
        for test in upstream.tests
    ]

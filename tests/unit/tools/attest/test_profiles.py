"""Profiles: what their files may say, which cases they name, and what a run of one allows and
states.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from tests import ck_stand_in
from tests.fakes import (
    ENDED,
    observation,
    place,
    reading,
    seen,
    shipped_suite,
    use_executor,
    write_specs,
)
from tests.fences import ROOT
from tests.recorded import edit, recorded
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.judge.waiving import Waivers
from torch_conformance.language import torch_names
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import Suite, load, surroundings_of
from torch_conformance.language.waivers import load_waivers
from torch_conformance.machine import schemas
from torch_conformance.machine.capabilities import (
    Machine,
    availability_of,
    inspect_files,
    questions_of,
)
from torch_conformance.machine.installed_torch import release
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.case_facts import NONE, Tally, Tuning, Tunings
from torch_conformance.model.codec import encode
from torch_conformance.model.conditions import Surroundings, VersionRange
from torch_conformance.model.devices import HOLDS, is_accelerator
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import AppliedWaiver, CaseResult, WaiverEffect
from torch_conformance.model.statement import Conformance
from torch_conformance.plan.profile import Resolved
from torch_conformance.plan.worker_plan import make_plan
from torch_conformance.record.conclusion import profile_statement
from torch_conformance.record.journal import JournalError, read_run
from torch_conformance.run.rejudge import surroundings_of_record
from torch_conformance.tools.attest.conformance import statement_of
from torch_conformance.tools.attest.profiles import (
    cases_of,
    for_compiler,
    load_shipped,
    read_profile,
    shipped_profiles,
)
from torch_conformance.tools.attest.verification import reasons_of

SPEC = """\
summary: The counters of a compile are those of one graph
backends: [cpu, eager]
tags: [TAG]
matrix: {size: [2, 3]}
function: |
  def fn(x):
      return x + params.size
inputs: [{rand: ["{{ size }}"]}]
expect: [{counter: {inductor.fxgraph_cache_miss: 1}}]
"""
ONE, TWO = SPEC.replace("TAG", "first"), SPEC.replace("TAG", "second")

WAIVERS = """\
waivers:
  - cases: "area/one*"
    failure: {type: counter, match: "cache_miss 1, observed 2"}
    reason: The cache counts a miss too many
    issue: JIRA-1
    until: 2099-01-01
  - cases: "area/two*"
    failure: {type: counter, match: "cache_miss 1, observed 2"}
    reason: The cache counts a miss too many
    issue: JIRA-2
    until: 2020-01-01
"""
HEAD = """\
profile: ours
version: "1.0"
summary: What our backend must pass
torch: ">=2.11"
specs: [specs]
"""
PROFILE = (
    HEAD + "backend: cpu\nlevels: {P0: {required: [{cases: 'area/one*'}]}, P1: {required: [{tag: "
    "second}]}}\n"
)
IDS = [f"area/{name}[backend=cpu,size={size}]" for name in ("one", "two") for size in (2, 3)]


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    (here / "known.yaml").write_text(WAIVERS)
    some, all_of_it = (
        "on_request: \"{{ 'one shows it' if size == 3 else '' }}\"\n",
        "on_request: one shows it\n",
    )
    return write_specs(
        here,
        {
            "area/one": ONE,
            "area/two": TWO + some,
            "area/rare": SPEC.replace("TAG", "rare") + all_of_it,
        },
    )


def resolved(text: str, suite: Suite | None = None) -> Resolved:
    Path("ours.yaml").write_text(text)
    profile = read_profile("ours.yaml")
    suite = suite or load(profile.specs, profile.backends)
    return cases_of(profile, suite, load_waivers(profile.waivers, suite.backends))


def levels(entries: str) -> str:
    return f"{HEAD}backend: cpu\nlevels: {{P0: {entries}}}\n"


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "required", "optional"),
    [
        ("{required: [{cases: '*'}]}", IDS, []),
        ("{required: [{cases: ['*one*', '*two*']}]}", IDS, []),
        (
            "{required: [{cases: '*', backend: eager, tag: second}]}",
            [IDS[2].replace("cpu", "eager"), IDS[3].replace("cpu", "eager")],
            [],
        ),
        ("{required: [{cases: '*', except: '*size=3]'}]}", IDS[::2], []),
        ("{required: [{tag: [first, second]}]}", IDS, []),
        (
            "{required: [{tag: rare}]}",
            ["area/rare[backend=cpu,size=2]", "area/rare[backend=cpu,size=3]"],
            [],
        ),
        ("{required: [{cases: 'area/rare*size=2]'}]}", ["area/rare[backend=cpu,size=2]"], []),
        ("{required: [{tag: first}], optional: [{cases: '*'}]}", IDS[:2], IDS[2:]),
        ("{required: [{tag: first}, {cases: '*'}]}", IDS, []),
    ],
)
def test_the_cases_of_an_entry(entries: str, required: list[str], optional: list[str]) -> None:
    (level,) = resolved(levels(entries)).record.levels
    assert (list(level.required), list(level.optional)) == (required, optional)


BAD: Mapping[str, tuple[str, str]] = {
    "empty": ("", "ours.yaml:1:1: the file is empty (a profile is a map with the keys"),
    "no levels": (HEAD, "ours.yaml:1:1: profile needs the key 'levels'"),
    "empty levels": (HEAD + "levels: {}\n", "ours.yaml:6:9: levels is empty"),
    "empty level": (levels("{}"), "ours.yaml:7:14: level is empty"),
    "nothing required": (
        levels("{optional: [{tag: first}]}"),
        "ours.yaml:7:1: the profile requires no case (add required:",
    ),
    "empty list": (levels("{required: []}"), "ours.yaml:7:25: required cases is empty"),
    "no cases": (
        levels("{required: [{backend: cpu}]}"),
        "ours.yaml:7:26: this entry names no cases (add cases: GLOB or tag: NAME",
    ),
    "glob": (
        levels("{required: [{cases: 'area/one*'}, {cases: 'area/three*'}]}"),
        "ours.yaml:7:56: no case matches 'area/three*' of cpu (ids",
    ),
    "tag": (
        levels("{required: [{tag: secnd}]}"),
        "ours.yaml:7:32: unknown tag 'secnd' (did you mean 'second'?)",
    ),
    "tag of other backends": (
        levels("{required: [{tag: first, backend: cuda}]}"),
        "ours.yaml:7:26: this entry names no case of cuda (list --select GLOB",
    ),
    "backend": (
        levels("{required: [{tag: first, backend: [cpu, cpp]}]}"),
        "ours.yaml:7:54: unknown backend 'cpp' (did you mean 'cpu'?)",
    ),
    "own backend": (
        PROFILE.replace("backend: cpu", "backend: cppu"),
        "ours.yaml:6:10: unknown backend 'cppu' (did you mean 'cpu'?)",
    ),
    "except": (
        levels("{required: [{tag: first, except: '*rare*x'}]}"),
        "ours.yaml:7:47: '*rare*x' leaves out nothing: no case of cpu matches",
    ),
    "named twice": (
        levels("{required: [{cases: '*'}, {tag: first}]}"),
        "ours.yaml:7:40: all 2 cases of this entry are named already: "
        "area/one[backend=cpu,size=2] in P0 (remove the entry",
    ),
    "level": (
        PROFILE.replace("P1", "P7"),
        "ours.yaml:7:50: unknown key 'P7' in levels (allowed: P0, P1, P2)",
    ),
    "key": (
        PROFILE.replace("tag:", "tags:"),
        "ours.yaml:7:67: unknown key 'tags' in entry (did you mean 'tag'?)",
    ),
    "range": (PROFILE.replace(">=2.11", "2.11"), "ours.yaml:4:8: '2.11' is not a version range"),
    "version": (
        PROFILE.replace('"1.0"', "1.0"),
        "ours.yaml:2:10: expected text, found the number 1.0",
    ),
    "waiver file": (
        PROFILE + "waivers: [{file: none.yaml}]\n",
        "none.yaml:1:1: cannot be read: No such file",
    ),
    "specs": (PROFILE.replace("[specs]", "[spec]"), "no such file or folder: spec"),
    "optional under a condition": (
        levels("{required: [{tag: first}], optional: [{tag: second, when: {arch: sm_90}}]}"),
        "ours.yaml:7:66: an optional case needs no condition",
    ),
    "condition": (
        levels("{required: [{tag: first, when: {device: cpu}}]}"),
        "ours.yaml:7:46: unknown key 'device' in condition on the machine",
    ),
    "range of a condition": (
        levels("{required: [{tag: first, when: {torch: '2'}}]}"),
        "ours.yaml:7:53: '2' is not a version range",
    ),
    "limit": (PROFILE + "most_waived: {percent: 51, reason: It is new}\n", "ours.yaml:8:24: "),
    "file of backends": (PROFILE + "backends: [none.yaml]\n", "none.yaml:1:1: cannot be read"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_reported_where_it_stands(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = BAD[what]
    Path("ours.yaml").write_text(text)
    for command in ("run", "list", "validate"):
        assert main([command, "--profile", "ours.yaml"]) == ExitCode.USAGE
        printed = capsys.readouterr()
        assert message in printed.err + printed.out, command
    assert not Path("reports").exists()


# -- shipped ---------------------------------------------------------------------------------------


class Gpu(NamedTuple):
    """A made-up machine by its GPU; that of the CPU has none."""

    arch: str = ""
    sms: int = 0
    gibibytes: int = 0

    @property
    def builds(self) -> Mapping[str, str]:
        """What torch is built for there."""
        return {"s": {"cuda": "13.0"}, "g": {"hip": "7.0"}}.get(self.arch[:1], {})

    @property
    def is_big(self) -> bool:
        """As Inductor decides it: ``tests/unit/machine/test_devices.py`` asks it."""
        if self.arch.startswith("gfx"):
            return not self.arch.startswith("gfx10")
        return self.sms >= 68

    @property
    def has_bfloat16(self) -> bool:
        """Whether Inductor compiles bfloat16 there."""
        return not self.arch.startswith("sm_") or int(self.arch[3:]) >= 80


GPUS: Mapping[str, Gpu] = {
    "CPU": Gpu(),
    "A100": Gpu("sm_80", 108, 79),
    "H200": Gpu("sm_90", 132, 139),
    "B200": Gpu("sm_100", 148, 178),
    "MI250": Gpu("gfx90a", 104, 63),
    "MI300X": Gpu("gfx942", 304, 191),
    "MI350": Gpu("gfx950", 256, 287),
    "RX 7900 XTX": Gpu("gfx1100", 48, 23),
    "P100": Gpu("sm_60", 56, 15),
    "RTX 2080 Ti": Gpu("sm_75", 68, 10),
    "T4": Gpu("sm_75", 40, 14),
    "L4": Gpu("sm_89", 58, 21),
    "RX 6800": Gpu("gfx1030", 30, 15),
}

PERFECT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("inductor-cpu", "operators-core", "compiler-core", "compiler-core-training"), ("CPU",)
    ),
    "inductor-cuda": ("A100", "H200", "B200"),
    "rocm": ("MI250", "MI300X", "MI350", "RX 7900 XTX"),
    "rocm-gemm-ck": ("MI250", "MI300X", "MI350"),
}
"""The machines that each shipped profile is for."""

TOO_SMALL: Mapping[str, tuple[str, ...]] = {
    "inductor-cuda": ("P100", "RTX 2080 Ti", "T4", "L4"),
    "rocm": ("RX 6800",),
    "rocm-gemm-ck": ("RX 7900 XTX", "RX 6800"),
}
"""Those on which a run of it is INCOMPLETE: they are older, or have too few multiprocessors."""


MATCHED = AppliedWaiver(
    effect=WaiverEffect.MATCHED, cases="", position=place(1), reason="", issue="", until=""
)


@cache
def of_shipped(name: str) -> tuple[Suite, Resolved]:
    """Return a shipped profile with its cases; one for any compiler for a made-up one, and torch
    2.13.
    """
    suite = shipped_suite()
    Path("ours.yaml").write_text(ENTRY.format("ours", "served: all"))
    profile = read_profile(name)
    assert profile.name == name
    assert Draft202012Validator(schemas.resolved("profile")).is_valid(profile.document.data)
    if profile.is_for_any:
        profile, suite = (
            for_compiler(profile, ["ours"]),
            load(profile.specs, [Path("ours.yaml")], surroundings_of("2.13.0", None)),
        )
    return suite, cases_of(profile, suite, load_waivers(profile.waivers, suite.backends))


def test_doctor_has_a_row_for_each_shipped_profile() -> None:
    rows = {resolved.profile.name: resolved.record for resolved in load_shipped(shipped_suite())}
    assert rows.keys() == shipped_profiles().keys()
    specs = {case_id.partition("[")[0] for case_id in rows["compiler-core"].required}
    assert specs == {"operators/core-forward", "operators/core-two-sizes"}
    # the digest is that of each backend (test_a_changed_requirement_changes_the_version)
    known = (shipped_profiles()["compiler-core"].parent / "versions.txt").read_text()
    assert rows["compiler-core"].digest in known


@pytest.mark.parametrize("name", shipped_profiles())
def test_a_changed_requirement_changes_the_version(name: str) -> None:
    record = of_shipped(name)[1].record
    line = f"{name} {record.version} {record.digest}"
    known = (shipped_profiles()[name].parent / "versions.txt").read_text().splitlines()
    assert line in known, (
        f"raise the version of {name} where versions.txt has this one, then add the line: {line}"
    )
    assert len({entry.rpartition(" ")[0] for entry in known}) == len(known), (
        "a version has one digest"
    )


MINORS = json.loads((Path(torch_names.__file__).parent / "data" / "names.json").read_text("utf-8"))[
    "torch"
]


@pytest.mark.parametrize(("name", "free"), [("inductor-cpu", "2.13"), ("inductor-cuda", "2.13")])
def test_the_minors_of_torch_that_need_no_waiver_are_those_of_the_waivers(
    name: str, free: str
) -> None:
    suite, resolved = of_shipped(name)
    by_id = {str(case.id): case for case in resolved.cases}
    waivers, record = Waivers(resolved.waivers, date.min), resolved.record
    assert record.without_waivers == free
    facts = {"cuda": "13.0", "arch": "sm_90", "gpus": "1"} if name == "inductor-cuda" else {}
    counts = {}
    for torch in MINORS:
        known = surroundings_of_record({"torch": torch, "python": "3.12.3", **facts})
        counts[torch.rpartition(".")[0]] = sum(
            bool(
                waivers.of(
                    case_id,
                    surroundings_for(suite.backends.by_name[by_id[case_id].backend], known, ""),
                )
            )
            for case_id in record.levels[0].required
        )
    assert not counts[free]
    page = (ROOT / "docs" / "guides" / "profiles.md").read_text("utf-8")
    row = re.search(rf"^\| `{name}` \| [0-9]+ % \| (.*) \|$", page, re.MULTILINE)
    assert row is not None
    minors = [minor for minor in counts if VersionRange.parse(record.torch).holds(release(minor))]
    shown = [str(counts[minor]) if minor in minors else "not in its range" for minor in counts]
    shown[0] += f" of {len(record.levels[0].required)}"
    assert row[1].split(" | ") == [*shown, free]


def facts_of(gpu: Gpu, torch: str) -> tuple[dict[str, str], Machine]:
    """Return what a run on a made-up machine records of it, and the machine."""
    known: dict[str, Any] = {
        "torch": torch,
        "python": "3.12.1",
        "gpus": len(gpu.builds),
        **gpu.builds,
        "triton": "3.7",
        "mkldnn": "float32",
    }
    if gpu.arch:
        known |= {"arch": gpu.arch, "gpu_memory": gpu.gibibytes << 30, "sms": gpu.sms}
        known |= {"big_gpu": gpu.is_big}
    machine = replace(
        inspect_files(None),
        python=(3, 12, 1),
        torch=torch,
        release=release(torch),
        builds=gpu.builds,
        found=dict.fromkeys(("triton", "cxx", "redis", "ck", "hipcc"), ("/folder",)),
        gpus=len(gpu.builds),
        gpu_memory=gpu.gibibytes << 30,
        arch=gpu.arch,
        facts=known,
        packages={"torch": True},
    )
    return {name: str(value) for name, value in known.items()}, machine


def products_of(case: Case) -> Iterator[tuple[int, str]]:
    """Yield K and dtype of each product of a case that Composable Kernel serves."""
    for step in case.steps:
        given = step.arguments.get("inputs", case.body.inputs)
        matrices = [
            (entry["randn"], entry["dtype"])
            for entry in given
            if isinstance(entry, Mapping) and len(entry.get("randn", ())) in (2, 3)
        ]
        for (first, dtype), (second, _) in pairwise(matrices):
            if first[-1] == second[-2]:
                text = str(case.body.functions)
                yield first[-1], "float8" if "float8" in text else str(dtype)


def tunings_of(case: Case) -> list[Tuning]:
    """Return the census of a perfect machine: torch draws candidates, of which Composable Kernel
    refuses some.
    """
    tile, alone = case.backend == "rocm-cktile", not case.backend.startswith("rocm-mixed")
    is_product = not case.backend.endswith("-conv")
    word = "CKTILE" if tile else "CK"
    most = case.body.settings.config.get("rocm.ck_max_profiling_configs")
    found = []
    for k, dtype in products_of(case) if is_product else [(0, "")]:
        count, refused = 4, 0
        if is_product and not tile:
            candidates = ck_stand_in.drawn(dtype, most)
            count, refused = len(candidates), sum(one.is_refused(k) for one in candidates)
        won = int(alone and refused < count)
        own = Tally(
            rendered=count,
            compiled=count,
            failed=0,
            refused=refused,
            timed=count - refused,
            won=won,
            error="",
        )
        other = replace(NONE, rendered=1, timed=1, won=1)
        op = "scaled_mm" if dtype == "float8" else "mm" if is_product else "convolution"
        by_backend = {word: own} if alone else {word: own, "ATEN": other}
        won_by = ("ATEN", word if won else "")[alone]
        found.append(
            Tuning(op=op, how="timed", winner=won_by, won_by=won_by, by_backend=by_backend)
        )
    return found


def served_by_ck(case: Case, here: Surroundings) -> bool:
    """Whether a perfect machine passes a case of a backend of Composable Kernel: its candidates are
    timed, and what the case says of them holds.
    """
    found = tunings_of(case)
    assert found, f"no product was found in {case.id}"
    facts = reading(here, tunings=Tunings(count=1, found=tuple(found[:1])))
    said = [
        verdict.status
        for step in case.steps
        for expected in step.expectations
        if expected.kind == "choices"
        for verdict in expected.check.judge(facts)
    ]
    timed = [tuning.tally("CK").timed + tuning.tally("CKTILE").timed for tuning in found]
    return all(timed) and not {Status.FAILED, Status.ERROR} & set(said)


def results_of(
    name: str, gpu: Gpu, torch: str
) -> tuple[Resolved, dict[str, str], dict[str, CaseResult]]:
    """Return a profile, and the results of a perfect machine with such a GPU."""
    suite, resolved = of_shipped(name)
    waivers = Waivers(resolved.waivers)
    facts, machine = facts_of(gpu, torch)
    machine = replace(machine, answers=dict.fromkeys(questions_of(resolved.cases), HOLDS))
    results: dict[str, CaseResult] = {}
    for case in resolved.cases:
        here = surroundings_for(suite.backends.by_name[case.backend], surroundings_of_record(facts))
        applied = [
            replace(MATCHED, cases=known.cases, issue=known.issue, until=known.until.isoformat())
            for known in waivers.of(case.id, here)[:1]
        ]
        known = availability_of(case, machine)
        assert known.availability is Availability.YES or any(
            map(known.reason.startswith, reasons_of(case, facts))
        ), known.reason
        # as many are waived as may be
        outcome = (
            Outcome.UNAVAILABLE
            if known.reason
            else Outcome.XFAIL
            if applied
            else Outcome.FAIL
            if case.backend.startswith("rocm-") and not served_by_ck(case, here)
            else Outcome.FAIL
            if gpu.arch and needs_more_than(gpu, case, here)
            else Outcome.PASS
        )
        results[case.id] = recorded(
            case.id, outcome, case_id=case.id, eager_operators=0, waivers=tuple(applied)
        )
    return resolved, facts, results


def needs_more_than(gpu: Gpu, case: Case, here: Surroundings) -> str:
    """Return why a case fails on a GPU as torch treats it, whatever its answers are."""
    if not is_accelerator(case.device):
        return ""
    if not gpu.has_bfloat16 and "bfloat16" in json.dumps(make_plan(case, here, {})):
        return "Inductor compiles no bfloat16"
    if gpu.is_big:
        return ""
    # one candidate, which is not timed: no template is offered
    aten = replace(NONE, rendered=1, won=1)
    only = Tuning(op="mm", how="only", winner="mm", won_by="ATEN", by_backend={"ATEN": aten})
    facts = reading(here, counters={"inductor": {}}, tunings=Tunings(count=1, found=(only,)))
    for expected in (expected for step in case.steps for expected in step.expectations):
        if expected.kind == "candidates" or "triton_tem" in str(expected.body):
            return f"{expected.kind} needs a template"
        for verdict in (
            expected.check.judge(facts) if expected.kind in ("choices", "counter") else ()
        ):
            if verdict.status is Status.FAILED and (
                expected.kind == "choices" or "select_algorithm" in verdict.leaf
            ):
                return f"{verdict.leaf}: {verdict.observed}"
    return ""


TORCHES = ("2.11.0", "2.12.0", "2.13.0")
TRAINING = pytest.mark.nightly(
    reason="the operators of compiler-core once more, with gradients; its version is always tested"
)

IN_CI = ("CPU", "H200", "MI300X", "RX 7900 XTX")
OTHERS = pytest.mark.nightly(
    reason="a machine of one kind with those that every run has: H200, MI300X, RX 7900 XTX"
)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        pytest.param(
            name,
            gpu,
            marks=TRAINING if name.endswith("-training") else () if gpu in IN_CI else OTHERS,
        )
        for name in shipped_profiles()
        for gpu in PERFECT[name]
    ],
)
def test_a_perfect_run_of_a_shipped_profile_is_conformant_on_every_machine_that_it_is_for(
    name: str, gpu: str
) -> None:
    for torch in TORCHES:
        resolved, facts, results = results_of(name, GPUS[gpu], torch)
        state = partial(statement_of, resolved.record, environment=facts, day=date(2026, 12, 1))
        assert state(results.values()).conformance is Conformance.CONFORMANT, state(
            results.values()
        ).why
        for level in state(results.values()).levels:
            assert {results[case_id].outcome for case_id in level.not_required} <= {
                Outcome.UNAVAILABLE
            }
        for level in resolved.record.levels:
            lost = next(
                case_id
                for case_id in level.required
                if results[case_id].outcome is not Outcome.UNAVAILABLE
            )
            assert (
                state(
                    [result for case_id, result in results.items() if case_id != lost]
                ).conformance
                is Conformance.INCOMPLETE
            )


@pytest.mark.parametrize(
    ("name", "gpu"), [(name, gpu) for name, gpus in TOO_SMALL.items() for gpu in gpus]
)
def test_on_a_small_or_an_old_gpu_a_run_is_incomplete_and_nothing_fails(
    name: str, gpu: str
) -> None:
    resolved, facts, results = results_of(name, GPUS[gpu], TORCHES[-1])
    stated = statement_of(
        resolved.record, results.values(), environment=facts, day=date(2026, 12, 1)
    )
    assert stated.conformance is Conformance.INCOMPLETE
    assert not [case_id for case_id, one in results.items() if one.outcome is Outcome.FAIL]


def test_what_a_small_gpu_cannot_do_is_seen() -> None:
    """Without their requirements the cases fail there, so that the test above can fail."""
    suite, resolved = of_shipped("inductor-cuda")
    for gpu, least in (("T4", 40), ("L4", 25), ("RTX 2080 Ti", 14)):
        facts, _ = facts_of(GPUS[gpu], "2.13.0")
        why = {
            case.id: needs_more_than(
                GPUS[gpu],
                case,
                surroundings_for(
                    suite.backends.by_name[case.backend], surroundings_of_record(facts)
                ),
            )
            for case in resolved.cases
        }
        assert len(list(filter(None, why.values()))) >= least


def test_composable_kernel_refuses_as_it_does() -> None:
    """The counts that its check of October 2024 gives for these sizes."""
    refused = {
        (dtype, k): sum(one.is_refused(k) for one in ck_stand_in.drawn(dtype, None))
        for dtype, k in (("float8", 256), ("bfloat16", 256), ("float16", 224), ("float8", 2048))
    }
    assert refused == {
        ("float8", 256): 326,
        ("bfloat16", 256): 4,
        ("float16", 224): 12,
        ("float8", 2048): 0,
    }
    assert len(ck_stand_in.drawn("float8", 24)) == 24
    assert ck_stand_in.drawn("float8", 24) == ck_stand_in.drawn("float8", 24)


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ("properties/mm-each-call[backend=rocm-ck,", lambda k: 64),
        ("ck/scaled-mm-fnuz[backend=rocm-ck,", lambda k: 64),
        ("ck/mm-bfloat16[backend=rocm-mixed", lambda k: 32),
    ],
)
def test_where_every_candidate_is_refused_nothing_is_served(
    spec: str, change: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in shipped_suite().cases if case.id.startswith(spec))
    here = surroundings_for(
        shipped_suite().backends.by_name[case.backend], surroundings_of("2.13.0", None)
    )
    assert served_by_ck(case, here)
    refuses = ck_stand_in.Instance(64, 4)
    monkeypatch.setattr(ck_stand_in, "drawn", lambda dtype, most: [refuses])
    monkeypatch.setitem(globals(), "products_of", lambda case: [(change(256), "float8")])
    assert not served_by_ck(case, here)


# -- runs ------------------------------------------------------------------------------------------

PASS: Mapping[str, Any] = {"observation": observation(seen())}
FAIL: Mapping[str, Any] = {
    "observation": observation(seen(counters={"inductor": {"fxgraph_cache_miss": 2}}))
}
OTHER: Mapping[str, Any] = {
    "observation": observation(seen(counters={"inductor": {"fxgraph_cache_miss": 3}}))
}

Run = Callable[..., tuple[ExitCode, dict[str, Any]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a profile; ``ends`` has how the cases with a word in their id
    end.

    It returns exit code and statement.
    """

    def run_it(
        text: str,
        *options: str,
        ends: Mapping[str, Mapping[str, Any]] | None = None,
        out: str = "out",
    ) -> Any:
        def answer(job: Job) -> Execution:
            assert job.plan is not None
            case_id = job.plan["id"]
            end = next((end for word, end in (ends or {}).items() if word in case_id), PASS)
            sent = end["observation"] and {**end["observation"], "id": case_id}
            return Execution(
                job=job,
                observation=sent,
                ending=end.get("ending", ENDED),
                seconds=1.0,
                isolation="fork",
            )

        Path("ours.yaml").write_text(text)
        use_executor(monkeypatch, answer)
        code = main(["run", "--profile", "ours.yaml", "--out", out, *options])
        if not Path(out, "run.jsonl").exists():
            return ExitCode(code), {}
        lines = Path(out, "run.jsonl").read_text().splitlines()
        validator = Draft202012Validator(schemas.resolved("journal"))
        assert not [
            error.message for line in lines for error in validator.iter_errors(json.loads(line))
        ]
        run = read_run(Path(out, "run.jsonl"))
        statement = encode(profile_statement(run.header, run.results))
        form = schemas.resolved("verify")["properties"]["statement"]
        assert not [error.message for error in Draft202012Validator(form).iter_errors(statement)]
        return ExitCode(code), statement

    return run_it


def test_a_run_of_a_profile_runs_its_cases_and_states(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, statement = run(PROFILE)
    assert (code, statement["conformance"], statement["executed"], statement["required"]) == (
        0,
        "CONFORMANT",
        4,
        4,
    )
    assert [result.case_id for result in read_run(Path("out/run.jsonl")).results] == IDS
    printed = capsys.readouterr()
    assert "profile ours 1.0, sha256 " in printed.out
    assert "  P0  CONFORMANT: 2 passed of 2 required\n" in printed.out
    assert (
        "CONFORMANT: 4 passed of 4 required\npage: out/index.html\nexecuted 4 of 4 selected, "
        "0 unavailable; report: " in printed.out
    )
    assert "INCOMPLETE" not in printed.err
    junit = Path("out/junit.xml").read_text()
    for name, value in {
        "profile": "ours 1.0",
        "statement": "CONFORMANT",
        "statement.executed": "4",
    }.items():
        assert f'<property name="{name}" value="{value}"' in junit


def test_a_failure_is_not_conformant(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, statement = run(PROFILE, ends={"two[backend=cpu,size=3]": FAIL})
    assert (code, statement["conformance"], statement["executed"]) == (1, "NOT CONFORMANT", 4)
    assert [level["conformance"] for level in statement["levels"]] == [
        "CONFORMANT",
        "NOT CONFORMANT",
    ]
    assert (
        "profile ours 1.0 is NOT CONFORMANT: 1 of 4 required cases failed: 1 x FAIL: counter"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("deletes", "change", "gone"),
    [
        (
            "one case",
            lambda file: file.write_text(
                TWO.replace("[2, 3]", "[2]").replace("params.size", "2 + params.size")
            ),
            IDS[3:],
        ),
        ("a spec", lambda file: file.rename(file.with_suffix(".txt")), IDS[2:]),
    ],
)
def test_a_case_that_the_ledger_has_and_no_spec_has_any_more_stays_required(
    run: Run,
    folder: Path,
    deletes: str,
    change: Callable[[Path], object],
    gone: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = folder / "specs" / "ledger.txt"
    rare = folder / "specs" / "area" / "rare.yaml"
    rare.write_text(rare.read_text().replace("tags: [rare]", "tags: [rare, second]"))
    assert main(["list", "specs", "--update", str(ledger)]) == ExitCode.OK
    assert run(PROFILE, out="whole")[0] == ExitCode.OK
    change(folder / "specs" / "area" / "two.yaml")
    code, statement = run(PROFILE)
    assert (code, statement["conformance"], statement["executed"], statement["required"]) == (
        4,
        "INCOMPLETE",
        6 - len(gone),
        6,
    ), deletes
    assert statement["levels"][1]["not_executed"] == dict.fromkeys(gone, "lost: it has no result")
    assert "lost: it has no result\n      area/two[backend=cpu,size=" in capsys.readouterr().out
    assert main(["list", "--profile", "ours.yaml"]) == ExitCode.OK
    assert f"{len(gone)}  unavailable: lost: no spec has this case" in capsys.readouterr().out


def test_an_exception_may_name_a_case_that_only_the_ledger_has(folder: Path) -> None:
    entry = "{cases: ['area/one*', 'area/two*'], except: 'area/two*size=3*'}"
    text = HEAD + f"backend: cpu\nlevels: {{P0: {{required: [{entry}]}}}}\n"
    specs = folder / "specs"
    assert main(["list", "specs", "--update", str(specs / "ledger.txt")]) == ExitCode.OK
    before = resolved(text).record.required
    (specs / "area" / "two.yaml").rename(specs / "area" / "two.txt")
    assert list(resolved(text).record.required) == list(before) == IDS[:3]


# -- waivers of a run ------------------------------------------------------------------------------

LIMIT = "most_waived: {percent: 50, reason: Half of it is new}\n"
LATER = HEAD + "backend: cpu\nlevels: {P2: {required: [{cases: 'area/one*'}, {tag: second}]}}\n"
PERMITS = LATER + LIMIT + "waivers: [{file: known.yaml}]\n"


def test_a_permitted_waiver_excuses_a_failure_and_is_listed(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, statement = run(PERMITS, ends={"one": FAIL})
    assert (code, statement["conformance"], statement["waived"]) == (0, "CONFORMANT", 2)
    assert statement["words"] == "CONFORMANT with 2 waivers"
    assert [(waiver["issue"], waiver["used_by"]) for waiver in statement["waivers"]] == [
        ("JIRA-1", IDS[:2])
    ]
    assert (
        "known.yaml:2:5 until 2099-01-01, 2 cases: The cache counts a miss too many (JIRA-1)"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("text", "ends", "used"),
    [
        (LATER + LIMIT, {"one": FAIL}, 0),
        (LATER + LIMIT + "waivers: []\n", {"one": FAIL}, 0),
        (LATER + LIMIT + "waivers: [{file: shipped}]\n", {"one": FAIL}, 0),
        (PERMITS, {"one": OTHER}, 0),
        (PERMITS, {"two": FAIL}, 0),  # expired
        (PERMITS, {}, 0),  # one passes, though it is waived
        (PERMITS.replace("P2", "P0"), {"one": FAIL}, 0),  # a waiver that is not shipped
        (PERMITS.replace(LIMIT, ""), {"one": FAIL}, 1),
        (PERMITS.replace("50", "49.9"), {"one": FAIL}, 1),
    ],
)
def test_a_failure_without_a_permitted_valid_waiver_is_one(
    run: Run, text: str, ends: Any, used: int
) -> None:
    code, statement = run(text, ends=ends)
    assert (code, statement["conformance"], len(statement["waivers"])) == (
        1,
        "NOT CONFORMANT",
        used,
    )


def test_other_waivers_are_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("more.yaml").write_text(WAIVERS)
    assert run(PERMITS, "--waivers", "more.yaml")[0] == ExitCode.USAGE
    assert "--profile ours: it does not permit the waivers of more.yaml" in capsys.readouterr().err
    assert run(PERMITS, "--waivers", "known.yaml", ends={"one": FAIL})[0] == ExitCode.OK


# -- any compiler ----------------------------------------------------------------------------------

ENTRY = (
    "{}: {{summary: A compiler of ours, joins: [cpu], device: cpu, compile: {{backend: "
    "aot_eager}}, proof: {{{}}}}}\n"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "it is for one backend of any compiler, and 0 are named (name yours"),
        ("--backend a --backend b", "it is for one backend of any compiler, and 2 are named"),
        ("--backend c", "unknown backend 'c'"),
        (
            "--backend b",
            "b.yaml:2:92: ours asks who computed each operator, and the proof of 'b' does not "
            "measure it (add served: all",
        ),
        ("--backend cpu", "does not measure it"),
    ],
)
def test_a_profile_for_any_compiler_needs_one_backend_that_measures(
    run: Run, options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("b.yaml").write_text(ENTRY.format("a", "served: all") + ENTRY.format("b", "graphs: 0"))
    assert run(
        PROFILE.replace("backend: cpu", "backend: any"), "--backends", "b.yaml", *options.split()
    ) == (ExitCode.USAGE, {})
    printed = capsys.readouterr()
    assert message in printed.out + printed.err


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        "specs",
        "--select '*'",
        "--backend cpu",
        "--tag first",
        "--retries 1",
        "--flaky pass",
        "--require cpu",
        "--min-executed 0",
    ],
)
def test_no_other_selection_and_no_retry(
    run: Run, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, statement = run(PROFILE, *shlex.split(options))
    assert (code, statement) == (ExitCode.USAGE, {})
    assert "--profile ours.yaml: " in (error := capsys.readouterr().err)
    assert "does not go with it" in error


def test_another_torch_is_refused_before_anything_runs(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(PROFILE.replace(">=2.11", "<2.0")) == (ExitCode.USAGE, {})
    assert " is not in <2.0, for which the profile is" in capsys.readouterr().err


def test_who_takes_the_name_of_a_shipped_profile_is_told_apart(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(PROFILE.replace("profile: ours", "profile: rocm"))[1]["version"]
        == "1.0 (not the shipped one)"
    )
    assert main(["submit", "out", "--out", "out.tar.zst"]) == ExitCode.FAILED
    printed = capsys.readouterr()
    assert "profile rocm 1.0 (not the shipped one), sha256 " in printed.out
    assert "profile: it is not the shipped rocm 1." in printed.err


# -- shards, journals ------------------------------------------------------------------------------


def test_a_shard_is_incomplete_and_the_merged_run_is_whole(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = [run(PROFILE, "--shard", f"{index}/2", out=f"s{index}")[1] for index in (1, 2)]
    assert [statement["conformance"] for statement in shards] == ["INCOMPLETE", "INCOMPLETE"]
    assert sum(statement["executed"] for statement in shards) == 4
    assert "not in shard 1/2" in capsys.readouterr().out
    assert main(["merge", "s1", "s2", "--out", "whole"]) == ExitCode.OK
    whole = read_run(Path("whole/run.jsonl"))
    statement = profile_statement(whole.header, whole.results)
    assert (statement.conformance.value, statement.executed) == ("CONFORMANT", 4)
    assert "CONFORMANT: 4 passed of 4 required" in capsys.readouterr().out


def forged(change: Callable[[list[dict[str, Any]]], None]) -> str:
    with pytest.raises(JournalError) as error:
        read_run(edit(Path("out/run.jsonl"), change))
    return str(error.value)


def _level(lines: Any) -> Any:
    return lines[0]["profile"][0]["levels"][1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda lines: lines[0]["profile"][0]["levels"].pop(),
            "its exit code is 1, but its cases give 0",
        ),
        (
            lambda lines: _level(lines).update(optional=_level(lines)["required"], required=[]),
            "its exit code is 1, but its cases give 0",
        ),
        (lambda lines: lines[0]["profile"].append(lines[0]["profile"][0]), "two profiles"),
        (
            lambda lines: _level(lines)["required"].extend(_level(lines)["required"]),
            "its profile names a case or a level twice",
        ),
        (
            lambda lines: lines[0]["profile"][0].update(torch="any"),
            "its profile: 'any' is not a version range",
        ),
        (
            lambda lines: lines[0]["profile"][0]["conditions"].update({IDS[0]: {"torch": "any"}}),
            "its profile: 'any' is not a version range",
        ),
        (
            lambda lines: lines[0]["profile"][0]["conditions"].update({IDS[0]: {"host": "any"}}),
            "its profile: 'host'",
        ),
        (lambda lines: lines[-1].update(exit_code=0), "its exit code is 0, but its cases give 1"),
    ],
)
def test_every_reader_computes_the_statement_again(run: Run, change: Any, says: str) -> None:
    run(PROFILE, ends={"two": FAIL})
    assert says in forged(change)


def test_what_one_level_requires_is_optional_in_none() -> None:
    text = (
        HEAD
        + "backend: cpu\nlevels: {P0: {optional: [{cases: '*'}], required: [{tag: first}]}, P1: "
        "{required: [{tag: second}]}}\n"
    )
    with pytest.raises(InvalidSpecs, match="1 problems"):
        resolved(text)
    text = text.replace("{tag: second}", "{cases: '*two*size=3]'}")
    assert [(level.required, level.optional) for level in resolved(text).record.levels] == [
        (tuple(IDS[:2]), (IDS[2],)),
        ((IDS[3],), ()),
    ]

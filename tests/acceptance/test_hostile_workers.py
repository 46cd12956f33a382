"""Workers that lie, flood, die and leave things behind: none of it is a pass, a traceback of ours,
or a process that stays.

Each spec of ``tests/specs/hostile`` is one attack; they run side by side with a case that does
nothing wrong. Every run of the tests tries all but ``LONG``, on prestarted zygotes; a nightly test
tries all at once, on zygotes that the run itself starts.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml
from lxml import etree  # type: ignore[import-untyped]  # lxml has no py.typed, and lxml-stubs are not a dependency of the tests

from tests.fakes import ROOT, environment, observation, observed, prestarted, program
from tests.ran import processes_below
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run
from torch_conformance.run.pipeline import phases_of

pytestmark = pytest.mark.torch

HOSTILE = ROOT / "tests" / "specs" / "hostile"

OUTCOMES = {
    "abort": (Outcome.CRASH, "killed by SIGABRT while in phase 'api'"),
    "fork-bomb": (Outcome.PASS, ""),
    "hundred-daemons": (Outcome.PASS, ""),
    "leaked-child": (Outcome.PASS, ""),
    "closed-pipe": (Outcome.CRASH, "exit code 70"),
    "missing-generated-code": (Outcome.ERROR, "the generated code cannot be judged"),
    "leaked-daemon": (Outcome.PASS, ""),
    "deadlock": (Outcome.TIMEOUT, "outlived its deadline while in phase 'api'"),
    "hang-signals-blocked": (Outcome.TIMEOUT, "outlived its deadline while in phase 'api'"),
    "deeply-nested-message": (Outcome.ERROR, "the worker sent a message that is nested too deep"),
    "system-exit": (
        Outcome.CRASH,
        "exit code 0 (SystemExit) while in phase 'api', in act at line 5 of the spec",
    ),
    "exit-code-3": (Outcome.CRASH, "exit code 3 while in phase 'api'"),
    "exit-code-0": (Outcome.CRASH, "ended without an answer while in phase 'api'"),
    "fatal-error": (Outcome.CRASH, "killed by SIGABRT while in phase 'api'"),
    "message-too-large": (
        Outcome.CRASH,
        "killed by SIGKILL while in phase 'api' (the worker sent more than 64 MiB)",
    ),
    "replaced-output-files": (Outcome.PASS, ""),
    "binary-message": (Outcome.ERROR, "the worker sent a message that is not JSON"),
    "gigabyte-output": (Outcome.PASS, ""),
    "truncated-message": (
        Outcome.CRASH,
        "ended without an answer while in phase 'api', in act at line 6 of the spec (the "
        "worker's last message was cut off)",
    ),
    "hang": (Outcome.TIMEOUT, "outlived its deadline while in phase 'api'"),
    "child-holds-pipe": (Outcome.PASS, ""),
    "daemon-holds-pipe": (Outcome.PASS, ""),
    "deleted-case-folder": (Outcome.PASS, ""),
    "inherited-descriptors": (Outcome.PASS, ""),
    "passing-case": (Outcome.PASS, ""),
    "empty-line-flood": (Outcome.ERROR, "the worker sent a message that is not JSON"),
    "list-message": (Outcome.ERROR, "the worker sent a message that is not a map"),
    "huge-exception-message": (
        Outcome.FAIL,
        "raised: expected no exception, observed builtins.ValueError in phase 'api': xxx",
    ),
    "binary-output": (Outcome.PASS, ""),
    "nan-observation": (Outcome.ERROR, "the worker sent a message that is not JSON"),
    "stack-overflow": (Outcome.CRASH, "killed by SIGSEGV while in phase 'api'"),
    "zygote-killed": (Outcome.CRASH, "killed by SIGKILL while in phase 'api' (the zygote ended"),
    "invalid-phases": (
        Outcome.ERROR,
        "the worker's observation makes no sense: observation.phases.a is not a finite number",
    ),
    "endless-daemon-chain": (Outcome.PASS, ""),
    "segfault": (Outcome.CRASH, "killed by SIGSEGV while in phase 'api'"),
    "case-folder-replaced": (Outcome.ERROR, "the worker prevented the writing of its observation"),
    "too-many-steps": (
        Outcome.ERROR,
        "the worker's observation makes no sense: it has too many steps",
    ),
    "process-stopped": (Outcome.TIMEOUT, "outlived its deadline while in phase 'api'"),
    "forged-observation": (
        Outcome.ERROR,
        "an observation lacks the token of its worker",
    ),
    "other-case-observation": (
        Outcome.ERROR,
        "the worker's observation makes no sense: it is another case's",
    ),
    "zygote-stopped": (Outcome.PASS, ""),
    "invalid-json-message": (Outcome.ERROR, "the worker sent a message that is not JSON"),
    "duplicate-observation": (Outcome.ERROR, "the worker answered twice"),
}


LONG = {"gigabyte-output": "binary-output", "fork-bomb": "hundred-daemons"}
"""Attacks that take a core for many seconds, each with another of its class that every run of the
tests tries.
"""

IN_CI = {name: expected for name, expected in OUTCOMES.items() if name not in LONG}


class Ran:
    """The run of some attacks, and what was left right after it."""

    def __init__(self, folder: Path, names: Iterable[str], variables: Mapping[str, str]) -> None:
        self.out = folder / "out"
        begun = time.monotonic()
        specs = [HOSTILE / f"{name}.yaml" for name in names]
        self.done = program(
            "run", *specs, "--out", self.out, "--timeout", "60", env=variables, timeout=150
        )
        self.seconds = time.monotonic() - begun
        self.results: Mapping[str, CaseResult] = {
            result.name: result for result in read_run(self.out / "run.jsonl").results
        }
        self.processes = processes_below(self.out)
        self.left_behind = {
            name: self._left_behind(result) for name, result in self.results.items()
        }

    def _left_behind(self, result: CaseResult) -> bool | None:
        file = self.out / result.folder / "left-behind"
        return is_alive(int(file.read_text())) if file.is_file() else None


def is_alive(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("hostile"), IN_CI, prestarted())


def test_every_attack_is_known_and_tried(ran):
    assert set(OUTCOMES) == {path.stem for path in HOSTILE.glob("[a-z]*.yaml")}
    assert set(ran.results) == set(OUTCOMES) - set(LONG)
    assert set(LONG.values()) <= set(ran.results)


@pytest.mark.nightly(
    reason="tries every attack once more, the long ones too; each has another of its class that "
    "every run of the tests tries"
)
def test_every_attack_ends_as_it_must_beside_all_others(tmp_path):
    ran = Ran(tmp_path, OUTCOMES, environment())
    assert set(ran.results) == set(OUTCOMES)
    assert {name: result.outcome for name, result in ran.results.items()} == {
        name: outcome for name, (outcome, _) in OUTCOMES.items()
    }
    wrong = {
        name: result.reason
        for name, result in ran.results.items()
        if not result.reason.startswith(OUTCOMES[name][1])
    }
    assert wrong == {}
    assert ran.processes == []
    assert True not in ran.left_behind.values()
    for name in LONG:
        test_what_is_recorded_is_bounded(ran, name)
    test_the_run_itself_is_unhurt(ran)


def test_every_fault_stands_in_the_table():
    table = (HOSTILE / "README.md").read_text("utf-8")
    specs = list(HOSTILE.parent.glob("hostile*/[a-z]*.yaml"))
    assert len(specs) > 50
    assert [path for path in specs if f"`{path.stem}`" not in table] == []


@pytest.mark.parametrize("name", IN_CI)
def test_an_attack_ends_as_it_must(ran, name):
    outcome, reason = OUTCOMES[name]
    assert ran.results[name].outcome is outcome, ran.results[name].reason
    assert ran.results[name].reason.startswith(reason)


def test_the_run_itself_is_unhurt(ran):
    assert ran.done.returncode == 1
    assert "this is a bug of torch-conformance" not in ran.done.stderr
    assert "Traceback" not in ran.done.stderr
    assert read_run(ran.out / "run.jsonl").footer is not None
    assert ran.seconds < 100


def test_no_process_stays(ran):
    assert ran.processes == []


def test_a_process_in_a_folder_is_seen(tmp_path):
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as child:
        seen = processes_below(tmp_path)
        child.kill()
    assert len(seen) == 1
    assert processes_below(tmp_path) == []


def test_the_stack_of_a_hang_is_told(ran):
    assert 'hang.yaml", line 7 in act' in ran.results["hang"].stderr
    assert (
        "Fatal Python error: nothing is left of the interpreter"
        in ran.results["fatal-error"].stderr
    )


@pytest.mark.parametrize(
    "name", ["leaked-child", "leaked-daemon", "deadlock", "child-holds-pipe", "daemon-holds-pipe"]
)
def test_what_a_worker_left_behind_is_dead(ran, name):
    assert ran.left_behind[name] is False


def test_a_worker_that_floods_does_not_hold_up_the_run(ran):
    for name in (
        "empty-line-flood",
        "message-too-large",
        "deeply-nested-message",
        "child-holds-pipe",
    ):
        assert ran.results[name].seconds < 60, "it ends before its time is up"


@pytest.mark.parametrize("name", sorted(IN_CI))
def test_what_is_recorded_is_bounded(ran, name):
    result = ran.results[name]
    assert len(result.stdout) < 300_000
    assert len(result.stderr) < 300_000
    assert len(result.reason) < 1_000
    assert sum(len(verdict.detail) for verdict in result.verdicts) < 100_000


def test_what_was_printed_is_kept_to_its_end(ran):
    result = ran.results["binary-output"]
    for name, recorded in (("stdout.txt", result.stdout), ("stderr.txt", result.stderr)):
        assert (ran.out / result.folder / name).stat().st_size > 10 << 20
        assert "the last line" in recorded
        assert "first" not in recorded


def test_the_reports_are_whole_and_plain(ran):
    data = (ran.out / "junit.xml").read_bytes()
    etree.fromstring(data)
    cases = [case for suite in JUnitXml.fromstring(data) for case in suite]
    assert len(cases) == len(IN_CI)
    assert len(data) < 3_000_000
    for text in (ran.done.stdout, ran.done.stderr, data.decode()):
        assert not set(text) & {"\x1b", "\x00", "\u202e", "\ud800"}


def test_nothing_is_read_through_what_was_put_in_its_place(ran):
    result = ran.results["replaced-output-files"]
    folder = ran.out / result.folder
    assert (result.stdout, result.stderr) == ("", "")
    facts = json.loads((folder / "observation.json").read_text())
    assert facts["id"] == "replaced-output-files[backend=host]"
    assert os.path.islink(folder / "code-0-0.txt")


def test_code_that_is_a_link_too_long_or_rewritten_is_missing_rather_than_read(
    tmp_path, monkeypatch
):
    import torch_conformance.record.case_files as module

    (tmp_path / "code-0-0.txt").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "code-0-1.txt")
    (tmp_path / "code-0-2.txt").mkdir()
    for piece, content in ((3, b"\xff code"), (5, b"\xff code!"), (6, b"code!")):
        (tmp_path / f"code-0-{piece}.txt").write_bytes(content)
    monkeypatch.setattr(module, "CODE_BYTES", 6)
    for piece, why in enumerate(
        [".", ".", ".", None, ".", "larger than", "not the text that the worker wrote"]
    ):
        with pytest.raises(OSError, match=why) if why is not None else nullcontext():
            assert (
                module.code_of_worker(tmp_path, {}, 0, piece, module.digest(b"\xff code"))
                == "\udcff code"
            )


def test_phases_that_are_no_time_are_left_out():
    odd: dict[str, Any] = {"a": 1.23456, "e": 1e12, "h": 0}
    assert phases_of(observed(observation(phases=odd))) == {"a": 1.2346, "h": 0.0}


@pytest.mark.parametrize(
    "sent",
    [7, [], {"b": -1}, {"c": "1"}, {"d": float("nan")}, {"f": 10**400}, {"g": None}],
    ids=lambda sent: str(sent)[:20],
)
def test_an_observation_with_phases_that_are_none_has_none(sent):
    facts = observed(observation(phases=sent))
    assert facts.nonsense
    assert phases_of(facts) == {}


def test_the_others_are_not_harmed(ran):
    assert ran.results["passing-case"].outcome is Outcome.PASS
    assert {
        result.isolation for name, result in ran.results.items() if name != "zygote-killed"
    } == {"fork"}

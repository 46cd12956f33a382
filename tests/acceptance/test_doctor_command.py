"""``doctor`` as a person runs it, and what a process with torch says of stand-ins for Composable
Kernel.
"""

import importlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ck_stand_in
from tests.fakes import ROOT, prestarted
from tests.json_schemas import validator
from tests.prestart import UNREAD
from tests.ran import Ran, called
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.run.pipeline import WorkerReport
from torch_conformance.tools.attest import ck_generators
from torch_conformance.tools.attest.commands import doctor
from torch_conformance.tools.attest.commands.doctor import DoctorOptions

INSTALLED = installed_torch()
assert INSTALLED is not None

SPEC = """\
summary: A sum is right
backends: [cpu, rocm]
function: "def fn(x): return x + 1"
inputs: [{rand: [4]}]
expect: [{close: {to: eager}}]
"""


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "a-sum.yaml").write_text(SPEC)
    return folder


def answered(
    capsys: pytest.CaptureFixture[str],
    code: int,
    *paths: Path,
    backends: tuple[Path, ...] = (),
    profile: Path | None = None,
) -> dict[str, Any]:
    """Return what ``doctor --json`` prints in this process, which must fit its schema."""
    options = DoctorOptions(
        paths=paths, backends=backends, json=True, profile=str(profile) if profile else None
    )
    assert doctor.main(options) == code
    found = json.loads(capsys.readouterr().out)
    validator("doctor").validate(found)
    return dict(found)


def of(found: dict[str, Any], id: str) -> dict[str, Any]:
    (finding,) = [finding for finding in found["findings"] if finding["id"] == id]
    return dict(finding)


# -- the command, with a worker that is made up ----------------------------------------------------


def test_a_worker_that_dies_leaves_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, specs: Path
) -> None:
    monkeypatch.setattr(
        doctor,
        "ask_worker",
        lambda machine, questions: WorkerReport(
            machine=machine, problem="ImportError: \x1b[31mlibx"
        ),
    )
    found = answered(capsys, ExitCode.FAILED, specs)
    assert (
        found["healthy"],
        of(found, "torch.worker")["level"],
        of(found, "torch.worker")["cause"],
    ) == (
        False,
        "problem",
        "ImportError: libx",
    )
    rows = {row["name"]: row for row in found["allows"]["backends"]}
    assert (rows["cpu"]["can_run"], rows["rocm"]["unavailable"]) == (1, 1)
    assert "eager" not in rows  # no case has it
    assert len(rows["rocm"]["reasons"]) == 1


PROFILE = """\
profile: ours
version: "1.0"
summary: Sums on our machines
torch: ">=2.11"
specs: [specs]
levels:
  P0: {required: [{cases: "a-sum*", backend: cpu}]}
"""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (("", ""), (1, 1, 0, True, "")),
        (("backend: cpu", "backend: [cpu, rocm]"), (2, 1, 1, False, "")),
        (('">=2.11"', '"<2.11"'), (1, 1, 0, False, "is not in <2.11, for which the profile is")),
    ],
)
def test_a_profile_has_a_row(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    specs: Path,
    changed: tuple[str, str],
    expected: tuple[int, int, int, bool, str],
) -> None:
    file = specs.parent / "ours.yaml"
    file.write_text(PROFILE.replace(*changed))
    monkeypatch.setattr(
        doctor,
        "ask_worker",
        lambda machine, questions: WorkerReport(machine=machine, facts={"triton": "1"}),
    )
    found = answered(capsys, ExitCode.OK, profile=file)
    (row,) = found["allows"]["profiles"]
    assert (row["name"], row["shown_by"]) == (
        "ours 1.0",
        f"torch-conformance list --profile {file}",
    )
    assert (row["cases"], row["can_run"], row["unavailable"], row["runs"]) == expected[:4]
    assert row["problem"].endswith(expected[4])
    assert sum(one["cases"] for one in row["reasons"]) == row["unavailable"] + row["perhaps"]
    assert {row["name"] for row in found["allows"]["backends"]} == (
        {"cpu", "rocm"} if "rocm" in changed[1] else {"cpu"}
    )


# -- processes with torch --------------------------------------------------------------------------


@pytest.fixture
def made_up_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the modules of torch that generators are asked through; they turn an
    ImportError into nothing, as torch does.
    """
    utils, conv, tile = (
        types.ModuleType(name)
        for name in ("utils", "ck_conv_template", "ck_tile_universal_gemm_template")
    )

    def try_import() -> tuple[str | None, Callable[[], list[object]]]:
        try:
            found = importlib.import_module("ck4inductor.universal_gemm.gen_instances")
        except ImportError:
            return None, list
        return "folder", found.gen_ops_library

    vars(utils)["try_import_ck_lib"] = try_import

    def conv_ops() -> list[object]:
        return list(
            importlib.import_module(
                "ck4inductor.grouped_conv_fwd.gen_instances"
            ).gen_conv_ops_library()
        )

    vars(conv)["gen_conv_ops_library"] = conv_ops
    vars(tile)["ops"] = lambda: [1, 2]
    monkeypatch.setitem(sys.modules, "torch._inductor.utils", utils)
    for module in (conv, tile):
        monkeypatch.setitem(sys.modules, f"torch._inductor.codegen.rocm.{module.__name__}", module)
    monkeypatch.setattr(ck_generators.imports, "import_inductor", lambda: None)
    for name in [name for name in sys.modules if name.partition(".")[0] == ck_stand_in.PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.parametrize(
    ("of_package", "counts", "reasons"),
    [
        ({}, {"universal_gemm": 3, "batched_gemm": 3, "grouped_conv": 3, "ck_tile": 2}, {}),
        (
            {"without": ["batched_universal_gemm"], "empty": ["grouped_conv_fwd"]},
            {"universal_gemm": 3, "grouped_conv": 0, "ck_tile": 2},
            {
                "batched_gemm": "ModuleNotFoundError: No module named "
                "'ck4inductor.batched_universal_gemm'",
                "grouped_conv": "",
            },
        ),
        (
            {"without": ["universal_gemm"]},
            {"universal_gemm": 0, "batched_gemm": 3, "grouped_conv": 3, "ck_tile": 0},
            dict.fromkeys(
                ("universal_gemm", "ck_tile"),
                "ModuleNotFoundError: No module named 'ck4inductor.universal_gemm'",
            ),
        ),
        (
            {"raises": "raise SystemExit('no')"},
            {},
            dict.fromkeys(
                ("universal_gemm", "batched_gemm", "grouped_conv", "ck_tile"), "SystemExit: no"
            ),
        ),
    ],
)
@pytest.mark.usefixtures("made_up_torch")
def test_the_generators_of_a_made_up_torch(
    tmp_path: Path, of_package: dict[str, Any], counts: dict[str, int], reasons: dict[str, str]
) -> None:
    ck_stand_in.make(tmp_path / "site", INSTALLED.root, **of_package)
    before = set(sys.modules)
    try:
        found = ck_generators.collect()
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert found == {"inductor": "", "counts": counts, "reasons": reasons}


# -- what a red case cites -------------------------------------------------------------------------

WRAPPER = """\
#!/bin/sh
echo "$*" >> "$0.log"
[ "$1" = --version ] && exec echo "a wrapper 1.0"
while [ "$1" != -o ]; do shift; done
echo "a library with its own copy" > "$2"
"""
DIES = """\
summary: A function that kills its process when it is compiled
backends: [cpu, eager]
prelude: "import os"
function: |
  def fn(x):
      if torch.compiler.is_compiling():
          os.kill(os.getpid(), 11)
      return x + 1
inputs: [{rand: [4]}]
expect: [{close: {to: eager}}]
"""


@pytest.fixture(scope="module")
def wrapper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrapper") / "c++"
    path.write_text(WRAPPER)
    path.chmod(0o755)
    return path


def ran_with(wrapper: Path, out: Path, *arguments: object) -> tuple[Ran, str]:
    """Return a run with a compiler, and how that was called."""
    log = wrapper.with_suffix(".log")
    log.write_text("")
    # no case of these compiles: what reads CXX is the check
    variables = prestarted(CXX=f"{wrapper}", **{UNREAD: "CXX"})
    done = called("run", *arguments, "--out", out, env=variables)
    return Ran(out, done.returncode, done.stdout, done.stderr), log.read_text()


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["host-pass[backend=host,value=1]", "host-crash[backend=host,way=segv]"]
)
def test_neither_a_green_run_nor_a_case_without_a_compiler_looks_at_it(
    wrapper: Path, tmp_path: Path, name: str
) -> None:
    ran, calls = ran_with(
        wrapper, tmp_path / "out", ROOT / "tests" / "specs" / "judged", "--select", name
    )
    assert (ran.code, "doctor" in ran.stdout, ran.results[name].warnings, calls) == (
        "crash" in name,
        False,
        (),
        "",
    )


@pytest.mark.torch
def test_a_case_that_crashes_cites_what_doctor_says_of_its_compiler(
    wrapper: Path, specs: Path
) -> None:
    (specs / "a-sum.yaml").write_text(DIES)
    ran, calls = ran_with(wrapper, specs / "out", specs, "--jobs", "1")
    says = (
        "cxx: each library that it builds has its own copy of the C++ runtime; torch has another "
        "copy"
    )
    warnings = {
        name: [text.startswith(says) for text in result.warnings]
        for name, result in ran.results.items()
    }
    assert warnings == {"a-sum[backend=cpu]": [True], "a-sum[backend=eager]": []}
    ends = [
        line.endswith("(red cases that use this tool: 1)")
        for line in ran.stdout.splitlines()
        if line.startswith(f"doctor: {says}")
    ]
    assert ends == [False, True]
    assert calls.count("-x c++ - -shared") == 2  # the check builds two libraries, once in a run
    again = specs / "again.xml"
    assert called("report", ran.out, "--junit", again).returncode == 0
    for file in (
        ran.out / "junit.xml",
        again,
        ran.out / "report" / "cases-0.js",
        ran.out / "report" / "index.js",
    ):
        assert file.read_text().count(f"doctor: {says}") == 1

"""``pytest --conformance``: what is collected, what each outcome becomes, and the options of pytest
that users know.

The run is a process of its own, as ever; its executor is a fake.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import GOOD
from tests.fakes import PACKAGE, ROOT
from torch_conformance.machine import child_python
from torch_conformance.tools.pytest_plugin import session_run
from torch_conformance.tools.pytest_plugin.items import spec_of

pytest_plugins = ["pytester"]

MATRIX = GOOD.replace(
    "backends: [cpu]", "backends: [cpu]\ntags: [cheap]\nmatrix: {n: [4, 5]}"
).replace("[4, 4]", '["{{ n }}", "{{ n }}"]')
WAIVERS = """\
waivers:
  - {{cases: 'area/waived*', failure: {{type: close, match: "rence 1; at"}}, reason: A defect of the fake, issue: "1", until: {until}}}
  - {{cases: 'area/xpass*', failure: {{type: close, match: "difference 1; at"}}, reason: It is gone, issue: "2", until: {until}}}
""".format(until=datetime.now(UTC).date() + timedelta(days=60))  # noqa: E501 - text that is read by its lines


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a project whose runs have a fake executor; the plugin is loaded by its name, whether
    it is installed or not.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv(
        "PYTEST_ADDOPTS", "-p torch_conformance.tools.pytest_plugin -p no:cacheprovider"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    whole = child_python.command

    def command(module: str, *arguments: str) -> list[str]:
        return whole(
            "tests.unit.tools.pytest_plugin.fake_session_run"
            if module.endswith("session_run")
            else module,
            *arguments,
        )

    monkeypatch.setattr(session_run.child_python, "command", command)
    pytester.makeini("[pytest]\n")
    return pytester


def write(project: pytest.Pytester, *names: str, text: str = GOOD) -> None:
    for name in names:
        path = project.path / "specs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_cases_are_items_with_ids_below_the_root(project: pytest.Pytester) -> None:
    write(project, "area/one", text=MATRIX)
    write(project, "area/_defaults", text="tags: [x]\n")
    write(project, "_hidden/two", "backends", text="no spec\n")
    (project.path / "test_usual.py").write_text("def test_usual(): pass\n")
    found = project.runpytest_inprocess("--conformance", "--collect-only", "-q")
    assert [line for line in found.outlines if "::" in line] == [
        "specs/area/one.yaml::one[backend=cpu,n=4]",
        "specs/area/one.yaml::one[backend=cpu,n=5]",
        "test_usual.py::test_usual",
    ]
    assert not (project.path / "reports").exists()  # nothing was run


def test_nothing_is_collected_without_the_option(project: pytest.Pytester) -> None:
    write(project, "area/one")
    assert (
        project.runpytest_inprocess("specs", "--collect-only", "-q").ret
        == pytest.ExitCode.NO_TESTS_COLLECTED
    )


def test_outcomes(project: pytest.Pytester) -> None:
    write(
        project,
        *(
            f"area/{name}"
            for name in (
                "passes",
                "fails",
                "crashes",
                "timeout",
                "fell",
                "errors",
                "waived",
                "xpass",
            )
        ),
    )
    write(project, "area/gpus", text=GOOD + "requires: [{gpus: '>=99'}]\n")
    (project.path / "w.yaml").write_text(WAIVERS)
    given = (
        "--conformance",
        "specs",
        "-rA",
        "--conformance-run=--waivers w.yaml",
        "--junitxml=j.xml",
        "--durations=20",
        "-vv",
    )
    found = project.runpytest_inprocess(*given)
    found.assert_outcomes(passed=1, failed=6, skipped=1, xfailed=1)
    output = found.stdout.str()
    for words in (
        "FAIL  area/fails[backend=cpu]",
        "specs/area/fails.yaml:7:11: close failed",
        "repro: torch-conformance run specs --waivers w.yaml --select 'area/fails[backend=cpu]'",
        "CRASH  area/crashes[backend=cpu]",
        "TIMEOUT  area/timeout[backend=cpu]",
        "FELL_BACK  area/fell[backend=cpu]",
        "ERROR  area/errors[backend=cpu]",
        "XPASS  area/xpass[backend=cpu]",
        "SKIPPED [1] specs/area/gpus.yaml:1: 0 GPUs visible, >=99 required",
        "FAILED specs/area/crashes.yaml::crashes[backend=cpu] - CRASH: ",
        "0.50s call     specs/area/passes.yaml::passes[backend=cpu]",
        "torch-conformance: the run is in ",
    ):
        assert words in output
    found.stdout.re_match_lines(
        [r"XFAIL specs/area/waived\.yaml::waived\[backend=cpu\] - .*defect of the fake"]
    )
    cases = {case.get("name"): case for case in ET.parse(project.path / "j.xml").iter("testcase")}
    failure = cases["fails[backend=cpu]"].find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("FAIL: close")
    assert (project.path / "reports" / "latest" / "junit.xml").is_file()


@pytest.mark.nightly(
    reason="a run of its own; the command of a session in the root is always tested"
)
def test_the_command_of_a_session_below_the_root_changes_to_the_root(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "area/fails")
    monkeypatch.chdir(project.path / "specs" / "area")
    found = project.runpytest_inprocess("--conformance", "..")
    found.assert_outcomes(failed=1)
    command = (
        f"repro: cd {project.path} && torch-conformance run specs --select "
        "'area/fails[backend=cpu]'"
    )
    assert command in found.stdout.str()


@pytest.mark.nightly(reason="a run of its own; the outcomes of a run are always tested")
def test_an_expected_failure_is_a_failure_under_runxfail(project: pytest.Pytester) -> None:
    write(project, "area/waived")
    (project.path / "w.yaml").write_text("\n".join(WAIVERS.splitlines()[:2]))
    found = project.runpytest_inprocess(
        "--conformance", "specs", "--runxfail", "--conformance-run=--waivers w.yaml"
    )
    found.assert_outcomes(failed=1)
    assert "XFAIL  area/waived[backend=cpu]" in found.stdout.str()


def test_an_invalid_spec_is_an_error_of_collection_and_no_other(project: pytest.Pytester) -> None:
    write(project, "area/good")
    write(project, "area/bad", text=GOOD.replace("close", "clsoe"))
    found = project.runpytest_inprocess("--conformance", "specs", "--continue-on-collection-errors")
    found.assert_outcomes(passed=1, errors=1)
    assert (
        "specs/area/bad.yaml:7:11: unknown expectation 'clsoe' (did you mean 'close'?)"
        in found.stdout.str()
    )
    write(project, "area/_defaults", text="nonsense: 1\n")
    found = project.runpytest_inprocess("--conformance", "specs/area/good.yaml")
    found.assert_outcomes(errors=1)
    assert "specs/area/_defaults.yaml:1:1: is not a file of defaults" in found.stdout.str()


def test_one_run_has_what_is_selected(project: pytest.Pytester) -> None:
    write(project, "area/one", "area/fails", text=MATRIX)
    found = project.runpytest_inprocess("--conformance", "specs", "-k", "4 and cheap")
    found.assert_outcomes(passed=1, failed=1, deselected=2)
    (journal,) = project.path.glob("reports/2*/run.jsonl")
    assert journal.read_text().count('"kind": "case"') == 2
    single = project.runpytest_inprocess(
        "--conformance", "specs/area/one.yaml::one[backend=cpu,n=5]"
    )
    single.assert_outcomes(passed=1)
    assert len(list(project.path.glob("reports/2*/run.jsonl"))) == 2


def test_the_run_ends_with_the_first_failure(project: pytest.Pytester) -> None:
    write(project, "area/a-fails", "area/b-slow")
    found = project.runpytest_inprocess(
        "--conformance", "specs", "-x", "--conformance-run=--jobs 1"
    )
    found.assert_outcomes(failed=1)
    assert not _running("fake_session_run", str(project.path))


@pytest.mark.nightly(reason="a run of its own; the outcomes of a run are always tested")
def test_a_run_that_ends_too_early_fails_its_cases(project: pytest.Pytester) -> None:
    write(project, "area/lost", "area/other")
    found = project.runpytest_inprocess("--conformance", "specs", "--conformance-run=--jobs 1")
    found.assert_outcomes(failed=2)
    assert "the run ended without a result of this case" in found.stdout.str()


def test_several_processes_of_pytest_are_refused(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PYTEST_ADDOPTS", "-p torch_conformance.tools.pytest_plugin -p xdist -p no:cacheprovider"
    )
    write(project, "area/one")
    found = project.runpytest_inprocess("--conformance", "specs", "-n", "2")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert "does not go with -n" in found.stderr.str()
    project.runpytest_inprocess("--conformance", "specs", "-n", "0").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--shard 1/2", "--shard does not go with pytest"),
        ("specs", "a PATH does not go with pytest"),
        ("--no-such-option", "not the options of 'torch-conformance run'"),
        ("'", "not the options of 'torch-conformance run'"),
    ],
)
def test_options_that_do_not_fit(project: pytest.Pytester, given: str, words: str) -> None:
    found = project.runpytest_inprocess("--conformance", "specs", f"--conformance-run={given}")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert words in found.stderr.str()


def test_ids_do_not_depend_on_the_arguments(tmp_path: Path) -> None:
    for name in ("specs/area/one.yaml", "top.yaml", "deep/in/specs/area/two.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(GOOD)
    named = (tmp_path / "deep" / "in" / "specs",)
    one, two = tmp_path / "specs/area/one.yaml", tmp_path / "deep/in/specs/area/two.yaml"
    usual = [spec_of(file, tmp_path) for file in (one, tmp_path / "top.yaml", two)]
    assert [spec and spec.area for spec in usual] == ["area", "", "in/specs/area"]
    assert [
        spec and spec.area
        for spec in (spec_of(one, tmp_path, named), spec_of(two, tmp_path, named))
    ] == [None, "area"]
    elsewhere = spec_of(two, tmp_path / "elsewhere")
    assert elsewhere is not None
    assert elsewhere.area == ""


def test_other_sessions_import_nothing_of_the_program() -> None:
    code = (
        "import sys, time\nbefore = set(sys.modules)\nbegun = time.perf_counter()\nimport "
        "torch_conformance.tools.pytest_plugin as plugin\n"
        "took = time.perf_counter() - begun\nclass P:\n    def getoption(self, name): return "
        "False\nplugin.pytest_configure(P())\n"
        "print(sorted(name for name in set(sys.modules) - before if "
        "name.startswith(('torch_conformance', 'yaml', 'jsonschema', 'torch'))))\n"
        "assert took < 0.5\n"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert (
        found.stdout.strip() == "['torch_conformance', 'torch_conformance.tools', "
        "'torch_conformance.tools.pytest_plugin']"
    )


def _running(*words: str) -> list[str]:
    """Return the command lines of processes with all these words."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if all(word in text for word in words):
            lines.append(text)
    return lines

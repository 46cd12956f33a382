"""What a clumsy or a malicious user can write: each file of tests/specs/invalid with the position and the code of its problems.

A new case is a file, or a folder of files, there; ``pytest --update-goldens`` writes its problems to ``expected.txt``, to be read
before it is committed. A few cases have a golden file with the exact lines that ``validate`` prints for them. What no
repository can hold (a pipe, a file of 100 MB, no permission) is made here.
"""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.language.load import inspect
from runner.language.waivers import read_waivers
from runner.model.diagnostics import Diagnostic
from runner.model.outcomes import ExitCode
from tests.conftest import GOOD

ROOT = Path(__file__).resolve().parents[2]
INVALID = ROOT / "tests" / "specs" / "invalid"
EXPECTED = INVALID / "expected.txt"
GOLDENS = sorted(path for path in INVALID.glob("*.txt") if path != EXPECTED)
CASES = sorted(path for path in INVALID.iterdir() if path.suffix == ".yaml" or path.is_dir())

LINE = re.compile(r"(?P<file>.+?):(?P<line>[0-9]+):(?P<column>[0-9]+): .+")

NO_SPEC = (
    "is not a spec: expected a map, found text or nothing (a spec is a map with the keys summary, backends, function, inputs and expect)"
)

Validate = Callable[..., list[str]]


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str]) -> Validate:
    """Return a function that validates and returns the lines, after it has seen the exit code and the count."""

    def run(*arguments: object) -> list[str]:
        code = main(["validate", *map(str, arguments)])
        out, err = capsys.readouterr()
        *lines, count = out.splitlines()
        assert (code, err) == (ExitCode.USAGE, "")
        assert count == ("1 problem" if len(lines) == 1 else f"{len(lines)} problems")
        return lines

    return run


def problems_of(path: Path) -> list[Diagnostic]:
    """Return the problems of a case, in the order in which ``validate`` prints them; its files of backends and waivers are read too."""
    problems: list[Diagnostic] = []
    backends, waivers = ([file] if (file := path / f"{name}.yaml").exists() else [] for name in ("backends", "waivers"))
    inspection = inspect([path.relative_to(ROOT)], [file.relative_to(ROOT) for file in backends])
    problems.extend(inspection.problems)
    read_waivers([file.relative_to(ROOT) for file in waivers], inspection.suite.backends, problems)
    return sorted(set(problems))


def test_each_file_has_its_problems(update_goldens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``expected.txt`` has the position and the code of each problem of each case."""
    monkeypatch.chdir(ROOT)
    lines = [f"{one.position} {one.code}".removeprefix("tests/specs/invalid/") for path in CASES for one in problems_of(path)]
    if update_goldens:
        EXPECTED.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == EXPECTED.read_text("utf-8").splitlines()


def test_no_case_is_valid() -> None:
    refused = {re.split("[/:]", line)[0] for line in EXPECTED.read_text("utf-8").splitlines()}
    assert refused == {path.name for path in CASES}


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_exact_lines(golden: Path, validate: Validate, update_goldens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (path,) = (path for path in CASES if golden.stem in (path.name, path.stem))
    beside = [file for name in ("backends", "waivers") if (file := path / f"{name}.yaml").exists()]
    lines = validate(path.relative_to(ROOT), *(word for file in beside for word in (f"--{file.stem}", file.relative_to(ROOT))))
    if update_goldens:
        golden.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == golden.read_text("utf-8").splitlines()


def test_every_position_is_in_the_file() -> None:
    for line in EXPECTED.read_text("utf-8").splitlines():
        file, number, column, _ = re.split(":| (?=[a-z0-9-]+$)", line)
        rows = re.split(rb"\r\n|\n", (INVALID / file).read_bytes())
        assert int(number) <= len(rows), line
        assert 1 <= int(column) <= len(rows[int(number) - 1].decode("utf-8", "replace")) + 1, line


def place(line: str) -> tuple[str, int, int]:
    match = LINE.fullmatch(line)
    assert match is not None, line
    return match["file"], int(match["line"]), int(match["column"])


def test_all_problems_of_all_files_are_told_in_one_go(validate: Validate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told = validate("tests/specs/invalid")
    assert len(set(told)) == len(told)
    assert [*map(place, told)] == sorted(map(place, told))
    places = {":".join(map(str, place(line))) for line in told}
    alone = {line.rpartition(" ")[0] for line in EXPECTED.read_text("utf-8").splitlines()}
    of_specs = {line for line in alone if "/" not in line or line.startswith(("defaults-", "several-files"))}
    assert {f"tests/specs/invalid/{line}" for line in of_specs} <= places


def test_json_says_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["validate", "--json", "tests/specs/invalid/many-problems.yaml"]) == ExitCode.USAGE
    said = json.loads(capsys.readouterr().out)
    assert said.keys() == {"format", "valid", "specs", "cases", "problems"}
    assert (said["format"], said["valid"], said["cases"]) == (1, False, 0)
    lines = [f"{p['file']}:{p['line']}:{p['column']}: {p['message']}" + (f" ({p['hint']})" if p["hint"] else "") for p in said["problems"]]
    assert lines == (INVALID / "many-problems.txt").read_text("utf-8").splitlines()
    codes = [f"{p['file']}:{p['line']}:{p['column']} {p['code']}".removeprefix("tests/specs/invalid/") for p in said["problems"]]
    assert codes == [line for line in EXPECTED.read_text("utf-8").splitlines() if line.startswith("many-problems.yaml:")]


# -- files that no repository can hold ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder ``specs/`` is in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    return tmp_path / "specs"


def test_a_file_of_100_mb_is_not_read(folder: Path, validate: Validate) -> None:
    with (folder / "large.yaml").open("wb") as file:
        file.truncate(100 << 20)
    assert validate("specs") == ["specs/large.yaml:1:1: is 104,857,600 bytes; at most 1,048,576 are read (a spec is one claim: split it)"]


def test_a_file_that_grows_while_it_is_read_is_not_read_on(validate: Validate) -> None:
    # its size is 0, and it has no end
    line = "/proc/self/pagemap:1:1: is more than 1,048,576 bytes; at most 1,048,576 are read (a spec is one claim: split it)"
    assert validate("/proc/self/pagemap") == [line]


@pytest.mark.parametrize("name", ["specs", "specs/odd.yaml"])
def test_a_pipe_is_not_waited_for(name: str, folder: Path, validate: Validate) -> None:
    os.mkfifo(folder / "odd.yaml")
    assert validate(name) == ["specs/odd.yaml:1:1: is not a regular file (a spec is a text file)"]


def test_links_that_lead_nowhere(folder: Path, validate: Validate) -> None:
    (folder / "dangling.yaml").symlink_to("nothing")
    (folder / "itself.yaml").symlink_to("itself.yaml")
    (folder / "_defaults.yaml").symlink_to("_defaults.yaml")
    assert validate("specs") == [
        "specs/_defaults.yaml:1:1: cannot be read: Too many levels of symbolic links (check the path and its permissions)",
        "specs/dangling.yaml:1:1: cannot be read: No such file or directory (check the path and its permissions)",
        "specs/itself.yaml:1:1: cannot be read: Too many levels of symbolic links (check the path and its permissions)",
    ]


def test_a_folder_that_links_to_one_above_it(folder: Path, validate: Validate) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "up").symlink_to("..")
    (folder / "bad.yaml").write_text("a spec\n")
    assert validate("specs") == [
        f"specs/bad.yaml:1:1: {NO_SPEC}",
        "specs/inner/up:1:1: this folder is a link to one above it (remove the link)",
    ]


def test_a_name_that_a_terminal_must_not_see(folder: Path, validate: Validate) -> None:
    for name in (b"a\nb.yaml", b"\xff.yaml", b"red\x1b[31m.yaml"):
        (Path(os.fsdecode(bytes(folder) + b"/" + name))).write_text(GOOD)
    hint = "(the name is part of the ids of its cases: rename the file)"
    assert validate("specs") == [
        rf"specs/a\nb.yaml:1:1: the character '\n' in the name of a spec {hint}",
        rf"specs/red\x1b[31m.yaml:1:1: the character '\x1b' in the name of a spec {hint}",
        rf"specs/\udcff.yaml:1:1: the character '\udcff' in the name of a spec {hint}",
    ]


# -- files that are not the specs' ----------------------------------------------------------------------------------

NETRC = "machine example.org login me password hunter2\n"
SECRETS = {
    "netrc": NETRC,
    "yaml": "api:\n  hunter2: hunter2\nhunter2: [hunter2]\n",
    "list": "- hunter2\n- token: hunter2\n",
    "syntax": "hunter2: [hunter2\nhunter2: }\n",
    "tag": "hunter2: !hunter2 hunter2\nother: *hunter2\n",
    "repeated": "hunter2: 1\nhunter2: 2\n",
    "tokens": "`hunter2\n@hunter2\n",
    "compose": "services: {hunter2: {environment: [hunter2]}}\nconfigs: {hunter2: {}}\n",
    "workflow": "env: {hunter2: hunter2}\ninputs: {hunter2: hunter2}\nsteps: [{run: hunter2}]\n",
    "latin": "password: hunter2\xe9\n",
}
LED_OUT = "is reached through a link that leads out of "


def write_secret(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SECRETS[name].encode("latin-1"))


@pytest.mark.parametrize("name", SECRETS)
def test_a_file_that_is_no_spec_is_not_quoted(name: str, folder: Path, validate: Validate) -> None:
    (folder / "good.yaml").write_text(GOOD)
    for secret in ("specs/odd.yaml", "specs/inner/_defaults.yaml", "vendor.yaml", "known.yaml"):
        write_secret(Path(secret), name)
    (folder / "inner" / "good.yaml").write_text(GOOD)
    lines = validate("specs", "--backends", "vendor.yaml", "--waivers", "known.yaml")
    assert {place(line)[0] for line in lines} == {"specs/odd.yaml", "specs/inner/_defaults.yaml", "vendor.yaml", "known.yaml"}
    assert not [line for line in lines if "hunter2" in line or "0xe9" in line]


@pytest.mark.parametrize("target", ["../netrc", "/proc/self/environ", "/dev/zero", "chain", "hop/netrc", "/nothing/there"])
def test_a_link_out_of_the_folder_is_refused(target: str, folder: Path, validate: Validate) -> None:
    (folder.parent / "netrc").write_text(NETRC)
    (folder / "chain").symlink_to("second")
    (folder / "second").symlink_to("../netrc")
    (folder / "hop").symlink_to("..")
    (folder / "good.yaml").write_text(GOOD)
    (folder / "odd.yaml").symlink_to(target)
    (folder / "a").mkdir()
    (folder / "a" / "_defaults.yaml").symlink_to(target if target.startswith("/") else f"../{target}")
    (folder / "a" / "good.yaml").write_text(GOOD)
    lines = [line for line in validate("specs") if "specs/hop" not in line]
    assert [place(line)[0] for line in lines] == ["specs/a/_defaults.yaml", "specs/odd.yaml"]
    assert all(LED_OUT in line for line in lines)


def test_a_linked_folder_and_named_files_that_lead_out(folder: Path, validate: Validate) -> None:
    away = folder.parent / "away"
    away.mkdir()
    (away / "secret.yaml").write_text(NETRC)
    (folder / "inner").symlink_to("../away")
    (folder / "odd.yaml").symlink_to("../away/secret.yaml")
    (folder / "good.yaml").write_text(GOOD)
    (line,) = [line for line in validate("specs") if "odd" not in line]
    assert line.startswith("specs/inner:1:1: this folder " + LED_OUT)
    (line,) = validate("specs/odd.yaml")
    assert LED_OUT in line
    for option in ("--backends", "--waivers"):
        (line,) = validate("specs/good.yaml", option, "specs/odd.yaml")
        assert LED_OUT in line


def test_links_within_a_folder_and_within_a_project_are_followed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "real.yaml").write_text(GOOD)
    (folder / "near.yaml").symlink_to("hop.yaml")
    (folder / "hop.yaml").symlink_to("real.yaml")
    assert main(["validate", "specs"]) == ExitCode.OK
    (folder.parent / "shared").mkdir()
    (folder.parent / "shared" / "far.yaml").write_text(GOOD)
    (folder / "far.yaml").symlink_to("../shared/far.yaml")
    assert main(["validate", "specs"]) == ExitCode.USAGE
    (folder.parent / "pyproject.toml").write_text("")
    capsys.readouterr()
    assert main(["validate", "specs"]) == ExitCode.OK, capsys.readouterr().out


# -- wrong usage ----------------------------------------------------------------------------------------------------


@pytest.fixture
def usage(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs the program and returns what it says about its arguments."""

    def run(*arguments: object) -> str:
        code = main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        assert (code, out) == (ExitCode.USAGE, "")
        return err.removeprefix("torch-conformance: ").rstrip("\n")

    return run


Usage = Callable[..., str]


def test_a_path_that_does_not_exist(folder: Path, usage: Usage) -> None:
    assert usage("validate", "specs/nothing") == "no such file or folder: specs/nothing"
    assert usage("list", "specs", "nothing.yaml") == "no spec below specs: specs are files that end in .yaml"
    assert usage("validate", "n" * 300) == f"cannot access {'n' * 300}: File name too long"


def test_nothing_is_run_and_nothing_lost_while_one_spec_is_invalid(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(GOOD + "conifg: {freezing: true}\n")
    (folder / "worse.yaml").write_text("a: [\n")
    Path("out").mkdir()
    for name in ("junit.xml", "out/run.jsonl", "out/junit.xml"):
        Path(name).write_text("what was written before")
    assert main(["run", "specs", "--out", "out", "--junit", "junit.xml"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "specs/bad.yaml:8:1: unknown key 'conifg' (did you mean 'config'?)",
        "specs/worse.yaml:2:1: YAML syntax: did not find expected node content (check the indentation and the quotes)",
        "2 problems; nothing was run",
    ]
    assert sorted(os.listdir()) == ["junit.xml", "out", "specs"]
    assert sorted(os.listdir("out")) == ["junit.xml", "run.jsonl"]
    for name in ("junit.xml", "out/run.jsonl", "out/junit.xml"):
        assert Path(name).read_text() == "what was written before"


# -- without end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["matrix-of-a-million", "matrix-beyond-counting", "alias-bomb", "alias-chain", "template-grows"])
def test_what_would_grow_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    begun = time.process_time()
    assert main(["validate", f"tests/specs/invalid/{name}.yaml"]) == ExitCode.USAGE
    assert time.process_time() - begun < 10

"""What a clumsy or a malicious user can write: each file of tests/specs/invalid with the position
and the code of its problems.

A new case is a file, or a folder of files, there; ``pytest --update-goldens`` writes its problems
to ``expected.txt``, to be read before it is committed. ``texts.txt`` has the exact lines that
``validate`` prints for a few cases. What no repository can hold (a pipe, a file of 100 MB, no
permission) is made here.
"""

import contextlib
import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import GOOD
from tests.fakes import ROOT
from torch_conformance.cli.parser import main
from torch_conformance.language.load import inspect
from torch_conformance.language.waivers import read_waivers
from torch_conformance.model.diagnostics import Diagnostic, Severity
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.problem_texts import texts

INVALID = ROOT / "tests" / "specs" / "invalid"
EXPECTED = INVALID / "expected.txt"
TEXTS_OF = INVALID / "texts.txt"
CASES = sorted(path for path in INVALID.iterdir() if path.suffix == ".yaml" or path.is_dir())

ELSEWHERE = {
    *(
        "meaning",
        "not-allowed",
        "python-unreadable",
    ),  # the words of a profile; no schema has it; depends on Python
    *(
        "endless-file",
        "folder-loop",
        "link-out-of-the-tree",
        "not-a-regular-file",
        "too-large-file",
        "unreadable-file",
        "unreadable-folder",
    ),
    *("expired-waiver", "waiver-without-case"),  # test_waivers
    *("gone-case", "gone-cases", "not-weak"),  # test_case_ledger, test_audit
    *(
        "bad-column",
        "column-is-no-key",
        "csv-syntax",
        "no-file-of-rows",
        "no-list-of-rows",
        "other-columns",
        "repeated-row",
        "row-lacks-keys",
        "row-without-keys",
        "rows-not-there",
        "rows-out-of-the-tree",
        "too-many-rows",
    ),  # test_rows
    "unknown-operator",  # of the installed torch: test_compilers
    "cannot-fail",  # a warning: below
    "option-read-at-import",  # of the installed torch: test_names
    *(
        "key-of-patterns",
        "reference-of-a-spy",
        "step-called-once",
        "too-many-exclusions",
        "yaml-unquoted-template",
    ),
}
"""The codes that no file here has."""

LINE = re.compile(r"(?P<file>.+?):(?P<line>[0-9]+):(?P<column>[0-9]+): .+")

Validate = Callable[..., list[str]]


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str]) -> Validate:
    """Return a function that validates and returns the lines, after it has seen the exit code and
    the count.
    """

    def run(*arguments: object) -> list[str]:
        code = main(["validate", *map(str, arguments)])
        out, err = capsys.readouterr()
        *lines, count = out.splitlines()
        assert (code, err) == (ExitCode.USAGE, "")
        assert count == ("1 problem" if len(lines) == 1 else f"{len(lines)} problems")
        return lines

    return run


def problems_of(path: Path) -> list[Diagnostic]:
    """Return the problems of a folder, in the order in which ``validate`` prints them; its files of
    backends and waivers are read too.
    """
    problems: list[Diagnostic] = []
    backends, waivers = (
        [file] if (file := path / f"{name}.yaml").exists() else []
        for name in ("backends", "waivers")
    )
    inspection = inspect([path.relative_to(ROOT)], [file.relative_to(ROOT) for file in backends])
    problems.extend(inspection.problems)
    read_waivers([file.relative_to(ROOT) for file in waivers], inspection.suite.backends, problems)
    return sorted(set(problems))


def test_each_file_has_its_problems(update_goldens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``expected.txt`` has the position and the code of each problem of each case."""
    monkeypatch.chdir(ROOT)
    problems = list(
        inspect([path.relative_to(ROOT) for path in CASES if path.suffix == ".yaml"]).problems
    )
    for path in CASES:
        problems += problems_of(path) if path.is_dir() else []
    lines = sorted(
        (
            f"{problem.position} {problem.code}".removeprefix("tests/specs/invalid/")
            for problem in set(problems)
        ),
        key=place_of,
    )
    if update_goldens:
        EXPECTED.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == EXPECTED.read_text("utf-8").splitlines()


def test_a_count_that_any_function_has_is_a_warning(tmp_path: Path) -> None:
    """A run would call the case an ERROR; with ``weak`` it does not."""
    (tmp_path / "counts.yaml").write_text(
        GOOD.partition("expect:")[0]
        + """expect:
  - counter: {stats.unique_graphs: {min: 1}, stats.calls_captured: {min: 2}}
  - metric: {generated_kernel_count: {min: 1}}
  - metric: {generated_kernel_count: {min: 1}}
    weak: it is counted elsewhere
"""
    )
    found = inspect([tmp_path / "counts.yaml"]).problems
    said = [(problem.code, problem.severity, problem.message.split(" ")[0]) for problem in found]
    assert said == [
        ("cannot-fail", Severity.WARNING, "stats.unique_graphs:"),
        ("cannot-fail", Severity.WARNING, "generated_kernel_count:"),
    ]


def place_of(line: str) -> tuple[str, int, int, str]:
    """Return file, line, column and code of a line of ``expected.txt``."""
    place, _, code = line.rpartition(" ")
    file, number, column = place.rsplit(":", 2)
    return file, int(number), int(column), code


def test_each_text_is_that_of_a_problem_that_a_file_has() -> None:
    """A code without a file here is one of ``ELSEWHERE``, with the test that has it."""
    expected = {place_of(line)[3] for line in EXPECTED.read_text("utf-8").splitlines()}
    assert texts().keys() - expected == ELSEWHERE
    assert [
        code for code in expected if code not in texts() and not code.startswith("unknown-")
    ] == []


def test_no_case_is_valid() -> None:
    refused = {re.split("[/:]", line)[0] for line in EXPECTED.read_text("utf-8").splitlines()}
    assert refused == {path.name for path in CASES}


def test_exact_lines(
    validate: Validate, update_goldens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts of problems of each kind, whole; everything else is held by code and position."""
    monkeypatch.chdir(ROOT)
    names = [
        "alias-bomb",
        "many-problems",
        "not-utf-8",
        "python-syntax-in-folded-text",
        "quote-not-closed",
        "template-gives-a-bad-word",
    ]
    lines = validate(
        *(f"tests/specs/invalid/{name}.yaml" for name in names), "tests/specs/invalid/several-files"
    )
    if update_goldens:
        TEXTS_OF.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == TEXTS_OF.read_text("utf-8").splitlines()


def test_every_position_is_in_the_file() -> None:
    for line in EXPECTED.read_text("utf-8").splitlines():
        file, number, column, _ = place_of(line)
        rows = re.split(rb"\r\n|\n", (INVALID / file).read_bytes())
        assert number <= len(rows), line
        assert 1 <= column <= len(rows[number - 1].decode("utf-8", "replace")) + 1, line


def place(line: str) -> tuple[str, int, int]:
    match = LINE.fullmatch(line)
    assert match is not None, line
    return match["file"], int(match["line"]), int(match["column"])


def test_all_problems_of_all_files_are_told_in_one_go(
    validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    told = validate("tests/specs/invalid")
    assert len(set(told)) == len(told)
    assert [*map(place, told)] == sorted(map(place, told))
    places = {":".join(map(str, place(line))) for line in told}
    alone = {line.rpartition(" ")[0] for line in EXPECTED.read_text("utf-8").splitlines()}
    of_specs = {
        line for line in alone if "/" not in line or line.startswith(("defaults-", "several-files"))
    }
    assert {f"tests/specs/invalid/{line}" for line in of_specs} <= places


def test_json_says_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["validate", "--json", "tests/specs/invalid/many-problems.yaml"]) == ExitCode.USAGE
    said = json.loads(capsys.readouterr().out)
    assert said.keys() == {"format", "valid", "specs", "cases", "problems"}
    assert (said["format"], said["valid"], said["cases"]) == (1, False, 0)
    lines = [
        f"{p['file']}:{p['line']}:{p['column']}: {p['message']}"
        + (f" ({p['hint']})" if p["hint"] else "")
        for p in said["problems"]
    ]
    assert lines == [
        line for line in TEXTS_OF.read_text("utf-8").splitlines() if "/many-problems.yaml:" in line
    ]
    codes = [
        f"{p['file']}:{p['line']}:{p['column']} {p['code']}".removeprefix("tests/specs/invalid/")
        for p in said["problems"]
    ]
    assert codes == [
        line
        for line in EXPECTED.read_text("utf-8").splitlines()
        if line.startswith("many-problems.yaml:")
    ]


# -- files that no repository can hold -------------------------------------------------------------


@pytest.fixture
def folder(here: Path) -> Path:
    """Return an empty working folder ``specs/`` is in."""
    (here / "specs").mkdir()
    return here / "specs"


def codes(*arguments: object) -> list[str]:
    """Return place and code of the problems that ``validate`` tells."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["validate", "--json", *map(str, arguments)]) == ExitCode.USAGE
    return [
        f"{p['file']}:{p['line']}:{p['column']} {p['code']}"
        for p in json.loads(out.getvalue())["problems"]
    ]


def test_files_that_are_not_read_to_their_end(folder: Path) -> None:
    with (folder / "large.yaml").open("wb") as file:
        file.truncate(100 << 20)
    assert codes("specs") == ["specs/large.yaml:1:1 too-large-file"]
    assert codes("/proc/self/pagemap") == ["/proc/self/pagemap:1:1 endless-file"], (
        "its size is 0, and it has no end"
    )


@pytest.mark.parametrize("name", ["specs", "specs/odd.yaml"])
def test_a_pipe_is_not_waited_for(name: str, folder: Path) -> None:
    os.mkfifo(folder / "odd.yaml")
    assert codes(name) == ["specs/odd.yaml:1:1 not-a-regular-file"]


def test_links_that_lead_nowhere_or_to_a_folder_above(folder: Path) -> None:
    (folder / "dangling.yaml").symlink_to("nothing")
    (folder / "itself.yaml").symlink_to("itself.yaml")
    (folder / "_defaults.yaml").symlink_to("_defaults.yaml")
    (folder / "inner").mkdir()
    (folder / "inner" / "up").symlink_to("..")
    (folder / "text.yaml").write_text("a spec\n")
    assert codes("specs") == [
        *(f"specs/{name}.yaml:1:1 unreadable-file" for name in ("_defaults", "dangling")),
        "specs/inner/up:1:1 folder-loop",
        "specs/itself.yaml:1:1 unreadable-file",
        "specs/text.yaml:1:1 other-file",
    ]


def test_a_name_that_a_terminal_must_not_see(folder: Path, validate: Validate) -> None:
    for name in (b"a\nb.yaml", b"\xff.yaml", b"red\x1b[31m.yaml"):
        (Path(os.fsdecode(bytes(folder) + b"/" + name))).write_text(GOOD)
    names = [line.partition(":")[0] for line in validate("specs")]
    assert names == [r"specs/a\nb.yaml", r"specs/red\x1b[31m.yaml", r"specs/\udcff.yaml"]


# -- files that are not the specs' -----------------------------------------------------------------

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


@pytest.mark.parametrize("name", SECRETS)
def test_a_file_that_is_no_spec_is_not_quoted(name: str, folder: Path, validate: Validate) -> None:
    (folder / "good.yaml").write_text(GOOD)
    for secret in ("specs/odd.yaml", "specs/inner/_defaults.yaml", "vendor.yaml", "known.yaml"):
        Path(secret).parent.mkdir(parents=True, exist_ok=True)
        Path(secret).write_bytes(SECRETS[name].encode("latin-1"))
    (folder / "inner" / "good.yaml").write_text(GOOD)
    lines = validate("specs", "--backends", "vendor.yaml", "--waivers", "known.yaml")
    assert {place(line)[0] for line in lines} == {
        "specs/odd.yaml",
        "specs/inner/_defaults.yaml",
        "vendor.yaml",
        "known.yaml",
    }
    assert not [line for line in lines if "hunter2" in line or "0xe9" in line]


@pytest.mark.parametrize(
    "target",
    ["../netrc", "/proc/self/environ", "/dev/zero", "chain", "hop/netrc", "/nothing/there"],
)
def test_a_link_out_of_the_folder_is_refused(target: str, folder: Path) -> None:
    (folder.parent / "netrc").write_text(NETRC)
    (folder / "chain").symlink_to("second")
    (folder / "second").symlink_to("../netrc")
    (folder / "hop").symlink_to("..")
    (folder / "good.yaml").write_text(GOOD)
    (folder / "odd.yaml").symlink_to(target)
    (folder / "a").mkdir()
    (folder / "a" / "_defaults.yaml").symlink_to(
        target if target.startswith("/") else f"../{target}"
    )
    (folder / "a" / "good.yaml").write_text(GOOD)
    lines = [line for line in codes("specs") if "specs/hop" not in line]
    assert lines == [
        f"specs/{name}.yaml:1:1 link-out-of-the-tree" for name in ("a/_defaults", "odd")
    ]


def test_a_linked_folder_and_named_files_that_lead_out(folder: Path) -> None:
    away = folder.parent / "away"
    away.mkdir()
    (away / "secret.yaml").write_text(NETRC)
    (folder / "inner").symlink_to("../away")
    (folder / "odd.yaml").symlink_to("../away/secret.yaml")
    (folder / "good.yaml").write_text(GOOD)
    assert codes("specs") == [
        f"specs/{name}:1:1 link-out-of-the-tree" for name in ("inner", "odd.yaml")
    ]
    for arguments in (
        ["specs/odd.yaml"],
        *(["specs/good.yaml", option, "specs/odd.yaml"] for option in ("--backends", "--waivers")),
    ):
        assert codes(*arguments) == ["specs/odd.yaml:1:1 link-out-of-the-tree"]


def test_links_within_a_folder_and_within_a_project_are_followed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


# -- wrong usage -----------------------------------------------------------------------------------


def test_a_path_that_does_not_exist(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["validate", "specs/nothing"],
        ["list", "specs", "nothing.yaml"],
        ["validate", "n" * 300],
    ):
        assert main(arguments) == ExitCode.USAGE
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)


def test_nothing_is_run_and_nothing_lost_while_one_spec_is_invalid(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "good.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(GOOD + "conifg: {freezing: true}\n")
    (folder / "worse.yaml").write_text("a: [\n")
    Path("out").mkdir()
    for name in ("junit.xml", "out/run.jsonl", "out/junit.xml"):
        Path(name).write_text("what was written before")
    assert main(["run", "specs", "--out", "out", "--junit", "junit.xml"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(": ")[0] for line in err.splitlines()] == [
        "specs/bad.yaml:8:1",
        "specs/worse.yaml:2:1",
        "2 problems; nothing was run",
    ]
    assert sorted(os.listdir()) == ["junit.xml", "out", "specs"]
    assert sorted(os.listdir("out")) == ["junit.xml", "run.jsonl"]
    for name in ("junit.xml", "out/run.jsonl", "out/junit.xml"):
        assert Path(name).read_text() == "what was written before"


# -- without end -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "matrix-of-a-million",
        "matrix-beyond-counting",
        "alias-bomb",
        "alias-chain",
        "template-grows",
    ],
)
def test_what_would_grow_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    begun = time.process_time()
    assert main(["validate", f"tests/specs/invalid/{name}.yaml"]) == ExitCode.USAGE
    assert time.process_time() - begun < 10

"""The cache of specs: what it holds back, what makes an entry invalid, and who may write it. Nothing here imports torch."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.diagnostics import Severity
from runner.core.exit_codes import ExitCode
from runner.core.listed import listed
from runner.language import listing as module
from runner.language import spec_keys
from runner.language.listing import Listing, listing
from runner.language.read import outside
from runner.language.read.listed_rows import Kinds, as_rows, from_rows
from runner.system import spec_cache
from tests.fakes import shipped_suite

ROOT = Path(__file__).resolve().parents[2]

GOOD = """\
summary: A product of two matrices
backends: [cpu]
matrix: {n: [1, 2]}
function: |
  def fn(x):
      return x @ x.T
inputs:
  - {randn: ["{{ n }}", 4]}
expect:
  - close: {to: eager}
"""
WARNS = GOOD + '  - {calls: {of: probe, count: {min: 1}}}\nspies: {probe: {function: "torch.cpu.get_capabilities"}}\n'


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_CONFORMANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "LEAST", 1)
    monkeypatch.setattr(spec_keys, "_sources", lambda: [__file__])  # the 600 files of the runner are read by one test
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "specs"
    (folder / "inner").mkdir(parents=True)
    for name in ("one", "two", "inner/three"):
        (folder / f"{name}.yaml").write_text(GOOD)
    return Path("specs")


def shape(found: Listing) -> tuple[object, ...]:
    return found.cases, found.problems, found.notes


def warm(specs: Path, files: tuple[Path, ...] = ()) -> Listing:
    """Fill the cache, and return what it then gives; the same as without it."""
    listing([specs], files)
    found = listing([specs], files)
    assert shape(found) == shape(listing([specs], files, use_cache=False))
    return found


def test_unchanged_specs_come_from_the_cache(specs: Path) -> None:
    assert listing([specs]).cached == 0
    found = warm(specs)
    assert (found.cached, len(found.cases)) == (3, 6)
    assert listing([specs], use_cache=False).cached == 0


def test_the_rows_give_back_every_shipped_case() -> None:
    cases = [listed(case, of_source=False) for case in shipped_suite().cases[:4000]]
    by_spec = {spec: [case for case in cases if case.spec == spec] for spec in {case.spec for case in cases}}
    kinds = Kinds()
    rows = {spec: as_rows(own, kinds) for spec, own in by_spec.items()}
    read = Kinds(json.loads(json.dumps(kinds.written)))
    for spec, own in by_spec.items():
        assert list(from_rows(json.loads(json.dumps(rows[spec])), read)) == own


@pytest.mark.parametrize(
    ("change", "cached"),
    [
        (lambda specs: (specs / "one.yaml").write_text(GOOD + "# a comment\n"), 2),
        (lambda specs: (specs / "four.yaml").write_text(GOOD), 3),
        (lambda specs: (specs / "two.yaml").unlink(), 2),
        (lambda specs: (specs / "two.yaml").rename(specs / "2.yaml"), 2),
        (lambda specs: (specs / "inner/_defaults.yaml").write_text("tags: [new]\n"), 2),
        (lambda specs: (specs / "_defaults.yaml").write_text("tags: [new]\n"), 0),
    ],
)
def test_what_changed_is_read(specs: Path, change: Callable[[Path], object], cached: int) -> None:
    warm(specs)
    change(specs)
    found = listing([specs])
    assert found.cached == cached
    assert shape(found) == shape(listing([specs], use_cache=False))
    assert listing([specs]).cached == len({case.spec for case in found.cases}), "the new state is cached"


def test_backends_and_the_runner_itself_are_part_of_the_key(specs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Path("vendor.yaml")
    vendor.write_text("mine: {summary: A vendor, joins: [cpu], device: cpu, proof: {graphs: {min: 1}}}\n")
    assert len(warm(specs, (vendor,)).cases) == 12
    vendor.write_text("mine: {summary: Another vendor, joins: [cpu], device: cpu, proof: {graphs: {min: 1}}}\n")
    assert listing([specs], (vendor,)).cached == 0
    assert warm(specs, (vendor,)).cached == 3
    monkeypatch.undo()
    files = set(spec_keys._sources())
    assert {
        str(ROOT / name) for name in ("runner/language/load.py", "schemas/spec.schema.json", "runner/language/data/names-2.13.json")
    } < files


def test_a_module_that_loses_a_name(specs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.language.read import python

    (tmp_path / "place" / "our_pkg").mkdir(parents=True)
    (tmp_path / "place" / "our_pkg" / "__init__.py").touch()
    source = tmp_path / "place" / "our_pkg" / "parts.py"
    source.write_text("def part(x): return x\n")
    monkeypatch.syspath_prepend(str(tmp_path / "place"))
    (specs / "two.yaml").write_text(
        GOOD.partition("matrix")[0] + 'function: {ref: "our_pkg.parts:part"}\ninputs: [{randn: [4]}]\nexpect: [{close: {to: eager}}]\n'
    )
    assert warm(specs).cached == 3
    source.write_text("def other(x): return x\n")
    python._find_in_module.cache_clear()  # as in a new process
    found = listing([specs])
    assert found.cached == 2
    assert "no name 'part' in our_pkg.parts" in str(found.problems[0])


def test_a_spec_with_a_problem_or_a_warning_is_read_each_time(specs: Path) -> None:
    (specs / "one.yaml").write_text(GOOD + "conifg: {}\n")
    (specs / "two.yaml").write_text(WARNS)
    found = warm(specs)
    assert found.cached == 1
    assert {problem.position.file for problem in found.problems} == {"specs/one.yaml", "specs/two.yaml"}
    assert {problem.severity for problem in found.problems if problem.position.file == "specs/two.yaml"} == {Severity.WARNING}


def test_defaults_with_a_problem_keep_everything_out(specs: Path) -> None:
    (specs / "inner" / "_defaults.yaml").write_text("tagz: [a]\n")
    found = warm(specs)
    assert found.cached == 0
    assert [problem.message for problem in found.problems][1:] == ["unknown key 'tagz' in defaults"], found.problems


def test_links_and_defaults_that_extend_are_read_each_time(specs: Path) -> None:
    (specs / "four.yaml").symlink_to("one.yaml")
    (specs / "inner" / "_defaults.yaml").write_text("extends: ../base.txt\n")
    (specs / "base.txt").write_text("tags: [one]\n")
    assert warm(specs).cached == 2


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "tests/specs/invalid").glob("*.yaml"))[::40])
def test_bad_input_beside_a_warm_cache(specs: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    warm(specs)
    (specs / "bad.yaml").write_bytes((ROOT / f"tests/specs/invalid/{name}.yaml").read_bytes())
    printed = []
    for options in ([], [], ["--no-cache"]):
        assert main(["validate", "specs", *options]) == ExitCode.USAGE
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1] == printed[2]
    assert listing([specs]).cached == 3


def test_two_files_with_one_id_are_found_in_the_cache(specs: Path) -> None:
    found = warm(specs)
    assert not found.problems
    (specs / "two.yml").write_text(GOOD)
    again = listing([specs])
    assert [problem.message for problem in again.problems] == ["the case id 'two[backend=cpu,n=1]' stands in specs/two.yaml too"]


@pytest.mark.parametrize("place", [0, 30, 60, 200, -1])
def test_a_file_that_was_changed_is_not_used(specs: Path, place: int) -> None:
    warm(specs)
    (file,) = spec_cache.folder().glob("*.specs")
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    found = listing([specs])
    assert (found.cached, len(found.cases)) == (0, 6)
    assert listing([specs]).cached == 3, "it was written anew"


def test_a_file_with_another_key_another_name_or_open_to_others_is_not_used(specs: Path) -> None:
    warm(specs)
    (file,) = spec_cache.folder().glob("*.specs")
    file.chmod(0o622)
    assert listing([specs]).cached == 0
    warm(specs)
    key = spec_cache.folder() / "key"
    key.unlink()
    assert listing([specs]).cached == 0
    warm(specs)
    cache = spec_cache.opened()
    assert cache is not None
    os.rename(file, cache.folder / "0.specs")
    assert cache.read("0") is None, "the name is part of the digest"


@pytest.mark.parametrize("what", ["home", "specs", "key"])
def test_what_somebody_else_could_write_is_ignored_with_a_note(specs: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    warm(specs)
    path = {"home": spec_cache.folder().parent, "specs": spec_cache.folder(), "key": spec_cache.folder() / "key"}[what]
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o022)
    found = listing([specs])
    assert (found.cached, len(found.cases)) == (0, 6)
    assert main(["validate", "specs"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out == "3 specs, 6 cases, no problem\n"
    assert err.startswith("the cache of specs is not used: ")
    assert str(path) in err
    assert main(["validate", "specs", "--no-cache"]) == ExitCode.OK
    assert capsys.readouterr().err == ""


def test_content_is_private_and_old_files_go(specs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm(specs)
    assert {stat.S_IMODE(path.stat().st_mode) for path in spec_cache.folder().iterdir()} == {0o600}
    first = next(spec_cache.folder().glob("*.specs"))
    os.utime(first, (1, 1))
    monkeypatch.setattr(spec_cache, "MOST_BYTES", first.stat().st_size + 10)
    warm(specs / "inner")
    assert not first.exists()
    assert spec_cache.usage()[0] == 1


def test_list_and_validate_print_the_same_from_the_cache(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (specs / "one.yaml").write_text(GOOD.replace("[cpu]", "[cpu, cuda]"))
    for command in (["list", "specs"], ["list", "--json", "specs"], ["validate", "specs"], ["list", "specs", "--backend", "cuda"]):
        printed = []
        for option in (["--no-cache"], [], []):
            assert main([*command, *option]) == ExitCode.OK
            printed.append(capsys.readouterr())
        assert printed[0] == printed[1] == printed[2]


def test_questions_within_questions_and_from_a_cache_are_noted() -> None:
    ask = outside.question("test question")(len)
    with outside.recorded() as outer:
        with outside.recorded() as inner:
            ask("abc")
        outside.repeat({("other", "a"): None})
    assert inner == {("test question", "abc"): 3}
    assert outer == {("test question", "abc"): 3, ("other", "a"): None}
    assert outside.ask("test question", "abcd") == 4

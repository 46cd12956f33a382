"""Each case from before the specs were renamed is still there, under its new name; and the names are short."""

import json
import re
from pathlib import Path

import pytest

from runner.plan.case_ledger import read_ledger
from tests import renamed
from tests.renamed import Renaming, differences, problems, renaming

ROOT = Path(__file__).resolve().parents[2]
NO_FIELD_WORDS = {"a", "an", "the", "is", "are", "was", "what", "which", "that"}
SMALL = Renaming(
    names={"area/an-old-one": "area/new-one", "area/another-old-one": "area/other-one"}, points={"area/an-old-one": ("[backend=cpu]",)}
)


def shipped_names() -> list[str]:
    specs = ROOT / "specs"
    return sorted(
        path.relative_to(specs).with_suffix("").as_posix()
        for path in specs.glob("*/*.yaml")
        if not path.name.startswith("_") and path.parent.name != "profiles"
    )


@pytest.mark.usefixtures("shipped_once")
def test_each_case_from_before_has_exactly_one_new_id() -> None:
    assert len(renaming().old_ids) == len(set(renaming().old_ids)) == 415
    removed = read_ledger(ROOT / "specs" / "ledger.txt").excused  # each with a reason
    assert problems(renaming(), renaming().old_ids, renamed.current_ids() | removed) == []
    assert len(removed & {renaming().new_id(old) for old in renaming().old_ids}) <= 1


def test_the_map_has_each_spec_once_and_keeps_its_area() -> None:
    names = renaming().names
    assert set(names) == set(renaming().points)
    assert len(set(names.values())) == len(names)
    assert [old for old, new in names.items() if old.split("/")[0] != new.split("/")[0]] == []
    assert set(names.values()) <= set(shipped_names())


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_spec_has_two_to_five_field_words_for_a_name(name: str) -> None:
    words = name.split("/")[1].split("-")
    assert 2 <= len(words) <= 5
    assert not NO_FIELD_WORDS & set(words)


def test_no_file_refers_to_an_old_name() -> None:
    old = {name.split("/")[1] for name in renaming().names}
    folders = [ROOT / name for name in ("benchmarks", "docs", "runner", "schemas", "specs", "tests") if (ROOT / name).is_dir()]
    texts = [path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".md", ".yaml", ".json"}]
    texts += [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    assert len(texts) > 500
    words = {path: set(re.findall(r"[\w-]+", path.read_text(encoding="utf-8", errors="replace"))) for path in texts if path != renamed.DATA}
    assert {str(path): sorted(found & old) for path, found in words.items() if found & old} == {}


@pytest.mark.parametrize(
    ("old", "now", "problem"),
    [
        ("area/unknown[backend=cpu]", set(), "area/unknown[backend=cpu]: no new name in renamed_specs.json"),
        (
            "area/an-old-one[backend=cpu]",
            {"area/new-one[backend=rocm]"},
            "area/an-old-one[backend=cpu]: no case has the id area/new-one[backend=cpu]",
        ),
    ],
)
def test_an_id_that_leads_nowhere_is_a_problem(old: str, now: set[str], problem: str) -> None:
    assert problems(SMALL, [old], frozenset(now)) == [problem]


def test_two_old_ids_with_one_new_id_are_a_problem() -> None:
    both = Renaming(names={"a/one": "a/same", "a/two": "a/same"}, points={})
    assert problems(both, ["a/one[b]", "a/two[b]"], frozenset({"a/same[b]"})) == ["a/two[b]: a/same[b] is already the new id of a/one[b]"]


def test_outcomes_are_compared_under_the_map() -> None:
    before = {"area/an-old-one[b]": "PASS", "area/another-old-one[b]": "PASS"}
    assert differences(SMALL, before, {"area/new-one[b]": "PASS", "area/other-one[b]": "PASS"}) == []
    assert differences(SMALL, before, {"area/new-one[b]": "FAIL"}) == [
        "area/new-one[b]: PASS before, FAIL after",
        "area/other-one[b]: PASS before, not run after",
    ]


def test_the_command_reads_journals_lists_and_plain_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = next(iter(renaming().names.items()))
    point = renaming().points[old][0]
    journal = [{"kind": "header"}, {"kind": "case", "case_id": old + point, "outcome": "PASS"}, {"kind": "footer"}]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in journal))
    (tmp_path / "after.jsonl").write_text(json.dumps({"kind": "case", "case_id": new + point, "outcome": "FAIL"}) + "\n")
    (tmp_path / "list.json").write_text(json.dumps([{"id": old + point}]))
    (tmp_path / "ids.txt").write_text(old + point + "\n")
    for name in ("run.jsonl", "list.json", "ids.txt"):
        assert renamed.main([str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.startswith(f"{old}{point} -> {new}{point}\n1 ids, 0 problems; ")
    assert renamed.main([str(tmp_path / "run.jsonl"), str(tmp_path / "after.jsonl")]) == 1
    assert capsys.readouterr().err == f"{new}{point}: PASS before, FAIL after\n"

"""``bless`` on files in many forms: the patch changes the claim alone, and the file keeps its form."""

import subprocess
from pathlib import Path

import pytest

from runner.language.read.document import Document
from runner.language.text_edits import patch
from tests.unit.test_bless import SPEC, Bless, Runs, bless, misses, runs

__all__ = ["bless", "runs"]

CLAIM = "  - counter: {inductor.fxgraph_cache_miss: 1}   # why one\n"
FORMS = {
    "block": (
        "  - counter:\n      inductor.fxgraph_cache_hit: 0   # none\n      inductor.fxgraph_cache_miss: 1\n",
        "  - counter:\n      inductor.fxgraph_cache_hit: 0   # none\n      inductor.fxgraph_cache_miss: 2\n",
    ),
    "one key a line, in braces": (
        "  - counter: {\n      inductor.fxgraph_cache_hit: 0,\n      inductor.fxgraph_cache_miss: 1,  # why\n    }\n",
        "  - counter: {\n      inductor.fxgraph_cache_hit: 0,\n      inductor.fxgraph_cache_miss: 2,  # why\n    }\n",
    ),
    "a range": ("  - counter: {inductor.fxgraph_cache_miss: {min: 1, max: 1}}\n", "  - counter: {inductor.fxgraph_cache_miss: 2}\n"),
    "conditions": (
        "  - counter: {inductor.fxgraph_cache_miss: [{when: {device: cuda}, value: 5}, {when: {device: cpu}, value: 1}]}\n",
        "  - counter: {inductor.fxgraph_cache_miss: [{when: {device: cuda}, value: 5}, {when: {device: cpu}, value: 2}]}\n",
    ),
    "a template": (
        '  - counter: {inductor.fxgraph_cache_miss: "{{ 1 if dynamic else 1 }}"}\n',
        "  - counter: {inductor.fxgraph_cache_miss: 2}\n",
    ),
    "tabs": (
        "  - counter:\t{inductor.fxgraph_cache_miss:\t1}\t# why\there\n",
        "  - counter:\t{inductor.fxgraph_cache_miss:\t2}\t# why\there\n",
    ),
    "no last line end": ("  - counter: {inductor.fxgraph_cache_miss: 1}", "  - counter: {inductor.fxgraph_cache_miss: 2}"),
}


def blessed(runs: Runs, bless: Bless, text: str) -> tuple[str, str]:
    """Bless a spec whose cases observed two misses; return the file with the patch, and what was said."""
    runs.spec.write_bytes(text.encode())
    assert runs.record("a", lambda case: misses(2)) == 1
    _, patch, said = bless("a")
    if patch:
        done = subprocess.run(["git", "apply", "-"], input=patch.encode(), capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    return runs.spec.read_bytes().decode(), said


QUICK = ("block", "a template", "tabs", "no last line end")
LATER = pytest.mark.nightly(reason="a third of a second each; three forms run each time")


@pytest.mark.parametrize("form", [form if form in QUICK else pytest.param(form, marks=LATER) for form in FORMS])
def test_the_claim_changes_and_its_form_stays(runs: Runs, bless: Bless, form: str) -> None:
    before, after = FORMS[form]
    text = SPEC.replace("backends: [cpu]", "backends: [cpu, cuda]") if form == "conditions" else SPEC
    changed, _ = blessed(runs, bless, text.replace(CLAIM, before))
    assert changed == text.replace(CLAIM, after)


def test_a_value_on_several_lines_is_refused(runs: Runs, bless: Bless) -> None:
    text = SPEC.replace(CLAIM, "  - counter:\n      inductor.fxgraph_cache_miss:\n        max: 1\n")
    changed, said = blessed(runs, bless, text)
    assert changed == text
    assert "the value stands on several lines: change it by hand" in said


def test_line_ends_of_another_system_stay(runs: Runs, bless: Bless) -> None:
    text = SPEC.replace("\n", "\r\n")
    changed, _ = blessed(runs, bless, text)
    assert changed == text.replace("cache_miss: 1}", "cache_miss: 2}")


def test_a_file_in_a_folder_with_a_blank_is_patched_by_both_programs(tmp_path: Path) -> None:
    path = tmp_path / "own specs" / "one.yaml"
    path.parent.mkdir()
    path.write_text(SPEC, encoding="utf-8")
    document = Document(path=path, file="own specs/one.yaml", content=SPEC.encode(), data={}, marks={}, key_marks={})
    text = patch(document, SPEC.replace("cache_miss: 1}", "cache_miss: 2}"))
    for command in (["git", "apply", "--check", "-"], ["patch", "-p1"]):
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert "cache_miss: 2}" in path.read_text(encoding="utf-8")

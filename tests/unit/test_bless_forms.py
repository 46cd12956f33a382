"""``bless`` on files in many forms: the patch changes the claim alone, and the file keeps its form."""

import subprocess

import pytest

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
    "quoted": ("  - \"counter\": {'inductor.fxgraph_cache_miss': 1}\n", "  - \"counter\": {'inductor.fxgraph_cache_miss': 2}\n"),
    "hexadecimal": ("  - counter: {inductor.fxgraph_cache_miss: 0x1}\n", "  - counter: {inductor.fxgraph_cache_miss: 2}\n"),
    "a range": ("  - counter: {inductor.fxgraph_cache_miss: {min: 1, max: 1}}\n", "  - counter: {inductor.fxgraph_cache_miss: 2}\n"),
    "any of": ("  - counter: {inductor.fxgraph_cache_miss: {any: [0, 1]}}\n", "  - counter: {inductor.fxgraph_cache_miss: 2}\n"),
    "conditions": (
        "  - counter: {inductor.fxgraph_cache_miss: [{when: {device: cuda}, value: 5}, {when: {device: cpu}, value: 1}]}\n",
        "  - counter: {inductor.fxgraph_cache_miss: [{when: {device: cuda}, value: 5}, {when: {device: cpu}, value: 2}]}\n",
    ),
    "a template": (
        '  - counter: {inductor.fxgraph_cache_miss: "{{ 1 if dynamic else 1 }}"}\n',
        "  - counter: {inductor.fxgraph_cache_miss: 2}\n",
    ),
    "blanks": (
        "  -   counter:   {  inductor.fxgraph_cache_miss  :   1  }   # why\n",
        "  -   counter:   {  inductor.fxgraph_cache_miss  :   2  }   # why\n",
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


QUICK = ("block", "a template", "no last line end")
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

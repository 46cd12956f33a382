"""The defects of torch: the page, the specs and the waivers name the same ones, and the programs of
the page fail.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes import ROOT, environment, program
from tests.fences import Fence, fences

PAGE = ROOT / "docs" / "guides" / "findings.md"
PUBLIC = "https://github.com/torch-conformance/torch-conformance/blob/main/docs/guides/findings.md"
"""The page, for a waiver of a defect without an issue."""
SPECS = {
    path.stem: yaml.safe_load(path.read_text("utf-8"))
    for path in (ROOT / "specs" / "defects").glob("[!_]*.yaml")
}
WAIVERS = [
    waiver
    for waiver in yaml.safe_load((ROOT / "specs" / "waivers.yaml").read_text("utf-8"))["waivers"]
    if waiver["cases"].startswith("defects/")
]
PROGRAMS = [fence for fence in fences(PAGE) if fence.mark == "program"]
_SECTION = re.compile(
    r"^### `(?P<name>[^`]+)`\n\n(?:\[#(?P<issue>\d+)\]\((?P<link>\S+)\)|No issue was found)",
    re.MULTILINE,
)


def issue_of(name: str) -> str:
    """Return the link to the issue that the summary of a spec names, or else to its section."""
    summary = SPECS[name]["summary"]
    if summary.endswith("(docs/guides/findings.md)"):
        return f"{PUBLIC}#{name}"
    found = re.search(r"\(pytorch/pytorch#(\d+)\)$", summary)
    assert found is not None, f"{name}: the summary does not end with (pytorch/pytorch#NUMBER)"
    return f"https://github.com/pytorch/pytorch/issues/{found[1]}"


def test_each_spec_has_one_waiver_of_its_own_case_and_issue() -> None:
    """A waiver for more than its case, or for another issue, would excuse what nobody confirmed."""
    expected = [
        (f"defects/{name}[backend={spec['backends'][0]}]", issue_of(name))
        for name, spec in sorted(SPECS.items())
    ]
    assert sorted((waiver["cases"], waiver["issue"]) for waiver in WAIVERS) == expected
    assert {len(spec["backends"]) for spec in SPECS.values()} == {1}


def test_the_page_has_a_section_for_each_spec_and_no_other() -> None:
    page = PAGE.read_text("utf-8")
    sections = {
        found["name"]: found["link"] or f"{PUBLIC}#{found['name']}"
        for found in _SECTION.finditer(page)
    }
    assert sections == {name: issue_of(name) for name in SPECS}
    assert all(
        found["link"].endswith(f"/{found['issue']}")
        for found in _SECTION.finditer(page)
        if found["link"]
    )
    assert set(re.findall(r"^\| \[`([^`]+)`\]\(#\1\)", page, re.MULTILINE)) == set(SPECS)
    wrong, stale, refused = (
        len(_SECTION.findall(part))
        for part in re.split(r"^## (?:Wrong|Stale|Calls that)", page, flags=re.MULTILINE)[1:]
    )
    assert f"**{wrong} wrong answers, {stale} stale answers, {refused} calls that raise.**" in page


@pytest.mark.nightly(
    reason="compiles every program of the page; the default run has four of the specs, which are "
    "XFAIL or XPASS"
)
@pytest.mark.torch
@pytest.mark.parametrize("fence", PROGRAMS, ids=lambda fence: fence.name)
def test_a_program_fails_as_long_as_torch_has_the_defect(fence: Fence, tmp_path: Path) -> None:
    file = tmp_path / fence.name
    file.write_text(fence.text, "utf-8")
    done = subprocess.run(
        [sys.executable, file],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    compiles = "assert_close" in fence.text
    assert done.returncode == 1, f"torch no longer has this defect: {done.stdout}{done.stderr}"
    assert ("\nAssertionError: " if compiles else "BackendCompilerFailed: ") in done.stderr, (
        done.stderr
    )


@pytest.mark.nightly(reason="compiles every spec of the area; the default run has four of them")
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_every_case_is_an_expected_failure(tmp_path: Path) -> None:
    vectors = environment(TORCHINDUCTOR_VEC_ISA_OK="1")  # some defects are in vector code alone
    done = program(
        "run",
        ROOT / "specs" / "defects",
        "--tag",
        "defects",
        "--out",
        tmp_path / "run",
        timeout=800,
        env=vectors,
    )
    assert re.search(rf"^ +{len(SPECS)} +XFAIL$", done.stdout, re.MULTILINE), done.stdout
    assert done.returncode == 0

"""The tutorial: its pictures are there, are named by the script that makes them, and show what the pages say."""

import importlib.util
import json
import re
import shutil
import struct
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

from runner.core.exit_codes import ExitCode
from tests.fences import ROOT, run_in

LIMIT = 150_000
"""Bytes of a picture."""

FAILURE = "first/scaled-softmax.yaml:11:20: graph_breaks failed"


def script() -> ModuleType:
    """Return ``tools/make_pictures.py``."""
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "docs" / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MAKER = script()


def shown() -> list[tuple[str, str, Path]]:
    """Return the pictures of every page of the tutorial: its name, the alternative text, the file."""
    found = []
    for page in sorted((ROOT / "docs" / "tutorial").glob("*.md")):
        text = page.read_text("utf-8")
        assert "<img" not in text
        found += [(page.name, alt, page.parent / target) for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)]
    return found


def pixels(picture: bytes) -> set[bytes]:
    """Return the different rows of a PNG, as they are stored."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 600
    data, at = b"", 8
    while at < len(picture):
        size, kind = struct.unpack(">I4s", picture[at : at + 8])
        data += picture[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    rows = zlib.decompress(data)
    length = len(rows) // height
    return {rows[start : start + length] for start in range(0, len(rows), length)}


def text_of(svg: str) -> str:
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)).replace("&#160;", " ")


def test_every_picture_is_described_and_named_by_the_script() -> None:
    pictures = shown()
    assert sorted(path.name for _, _, path in pictures) == sorted(MAKER.NAMES)
    assert {path.parent for _, _, path in pictures} == {MAKER.PICTURES}
    assert {path.name for path in MAKER.PICTURES.iterdir()} == set(MAKER.NAMES), "a picture that no page shows"
    for page, alt, path in pictures:
        assert len(alt.split()) > 8, f"{page}: {path.name} needs an alternative text"
        assert path.stat().st_size < LIMIT, path


def test_committed_pictures_are_not_blank() -> None:
    for name in MAKER.NAMES:
        picture = (MAKER.PICTURES / name).read_bytes()
        if name.endswith(".png"):
            assert len(pixels(picture)) > 100, name
        else:
            assert re.search(rb"https?://(?!www\.w3\.org/2000/svg|meta-pytorch)", picture) is None, f"{name} loads something"
    assert FAILURE in text_of((MAKER.PICTURES / "failure.svg").read_text("utf-8"))


def test_recorded_observations_are_of_the_runs_that_are_shown() -> None:
    recorded = json.loads(MAKER.RECORDED.read_text("utf-8"))
    assert set(recorded) == {*MAKER.RUNS, "facts"}
    assert all(kept["observation"]["id"] == case for name in MAKER.RUNS for case, kept in recorded[name].items())


@pytest.mark.nightly(reason="starts runs and a browser; the tests above look at the committed pictures")
def test_the_script_makes_every_picture(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the extra browser)")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no Chromium is installed")
    texts = MAKER.make(tmp_path / "pictures", tmp_path / "runs")
    assert set(texts) == set(MAKER.NAMES)
    wanted = {
        "failure.svg": ("FAIL", FAILURE, "expected: graph breaks: 0", "observed: 1"),
        "fell-back.svg": ("FELL_BACK", "proof failed", "inductor_entry_impl"),
        "summary.png": ("1 case failed", "scaled-softmax"),
        "case.png": ("scaled-softmax[backend=cpu]", "graph breaks: 0", "peak = x.abs().max().item()"),
        "matrix.png": ("cpu-ours", "relu-of-sum", "two-sizes", "scaled-softmax"),
    }
    assert set(wanted) == set(texts)
    for name, words in wanted.items():
        assert [word for word in words if word not in texts[name]] == [], (name, texts[name])
        if name.endswith(".png"):
            assert len(pixels((tmp_path / "pictures" / name).read_bytes())) > 100, name
        else:
            made, committed = ((folder / name).read_text("utf-8") for folder in (tmp_path / "pictures", MAKER.PICTURES))
            assert made == committed, "run: python tools/make_pictures.py"


@pytest.mark.nightly(reason="compiles; the pictures above are of observations that were recorded by the same commands")
@pytest.mark.torch
def test_the_runs_of_the_tutorial_end_with_torch_as_the_pages_say(tmp_path: Path) -> None:
    codes = {}
    for name, run in MAKER.RUNS.items():
        place = tmp_path / name
        place.mkdir()
        MAKER.write_files(place, of_first=run.of_first)
        done = run_in(place, *run.command.split(), timeout=600)
        codes[name] = done.returncode
        if name == "red":
            assert FAILURE in done.stdout
            assert "      1  FAIL\n" in done.stdout
        if name == "fell-back":
            assert "      2  FELL_BACK\n" in done.stdout
    assert codes == {"red": ExitCode.FAILED, "fell-back": ExitCode.FAILED, "ours": ExitCode.OK}


@pytest.mark.nightly(reason="starts runs without a worker; test_doc_commands parses the same commands")
def test_the_commands_after_a_run_say_what_the_pages_say(tmp_path: Path) -> None:
    """Compare, write a script, hand over and verify: on runs of the recorded observations, in one folder as the reader has it."""
    pytest.importorskip("zstandard", reason="zstandard is not installed (the extra submit)")
    said = {}
    MAKER.start("red", tmp_path)
    commands = [
        "explain scaled-softmax[backend=cpu] first",
        "repro scaled-softmax[backend=cpu] first",
        "diff red ours",
        "submit ours --out ours.tar.zst",
        "verify ours.tar.zst --specs first --specs ours.yaml",
    ]
    for command in commands:
        if command.startswith("diff"):
            MAKER.start("ours", tmp_path)
        done = run_in(tmp_path, *command.split())
        assert done.returncode == ExitCode.OK, (command, done.stdout, done.stderr)
        said[command.split()[0]] = done.stdout
    assert "import torch" in said["repro"]
    assert "'graph_breaks', 'graph breaks', (0, 0, ()), None)" in said["repro"], "the page says that the script prints the graph break"
    assert "'scaled-softmax[backend=cpu]'  FAIL, then PASS [spec-changed]" in said["diff"]
    assert "judged again: 8 PASS, 8 UNAVAILABLE" in said["verify"]

"""What commands take where their command line names no specs: conformance.yaml, or the specs of the
working folder.
"""

from pathlib import Path

import pytest

from tests.conftest import GOOD
from torch_conformance.cli.parser import main

BACKENDS = "mine: {summary: A compiler of ours, device: cpu, proof: {graphs: {min: 1}}}\n"
SHIPPED = "shipped cases; name a path, or write conformance.yaml, for your own"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"mine/a.yaml": GOOD, "conformance.yaml": "paths: mine\n", "src/x.py": ""},
            "1 case of ../mine",
        ),
        (
            {"specs/a.yaml": GOOD, "b.yaml": BACKENDS, "conformance.yaml": "backends: b.yaml\n"},
            "1 case of ../specs",
        ),
        (
            {"b.yaml": BACKENDS, "conformance.yaml": "backends: b.yaml\n", "src/x.py": ""},
            "no specs here: name a path, or write paths in ../conformance.yaml",
        ),
        ({"src/.git": "", "conformance.yaml": "paths: gone\n", "src/x.py": ""}, SHIPPED),
        (
            {"src/a.yaml": GOOD, "conformance.yaml": "paths: gone\n"},
            "conformance.yaml:1:8: no such",
        ),
    ],
)
def test_settings_are_those_of_the_nearest_folder_above(
    files: dict[str, str],
    says: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    (here / "src").mkdir(exist_ok=True)
    monkeypatch.chdir(here / "src")
    main(["list"])
    assert says in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("files", "arguments", "says"),
    [
        ({}, [], SHIPPED),
        ({"docker-compose.yaml": "services: {web: {image: x}}\n"}, [], SHIPPED),
        ({"specs/good.yaml": GOOD}, [], "specs: 1 case of ./specs"),
        ({"specs/good.yaml": GOOD}, ["."], "specs: 1 case of ."),
        (
            {"good.yaml": GOOD, "docker-compose.yaml": "services: {web: {image: x}}\n"},
            [],
            "specs: 1 case of ./good.yaml",
        ),
        (
            {
                "good.yaml": GOOD,
                "ours.yaml": "profile: ours\nsummary: Ours\ntorch: '>=2'\nlevels: {}\n",
            },
            [],
            "specs: 1 case of ./good.yaml",
        ),
        (
            {
                "specs/good.yaml": GOOD,
                "mine/a.yaml": GOOD,
                "mine/b.yaml": GOOD,
                "conformance.yaml": "paths: mine\n",
            },
            [],
            "2 cases of ./mine",
        ),
        (
            {"specs/good.yaml": GOOD, "mine/a.yaml": GOOD, "conformance.yaml": "paths: [mine]\n"},
            ["specs"],
            "specs: 1 case of ./specs",
        ),
        (
            {"conformance.yaml": "path: mine\n"},
            [],
            "conformance.yaml:1:1: unknown key 'path' in conformance (did you mean 'paths'?)",
        ),
        (
            {"conformance.yaml": "paths:\n  - mine\n"},
            [],
            "conformance.yaml:2:5: no such file or folder: mine",
        ),
        ({"conformance.yaml": "profile: none.yaml\n"}, [], "none.yaml"),
    ],
)
def test_the_first_line_says_which_specs_are_taken(
    files: dict[str, str],
    arguments: list[str],
    says: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    main(["list", *arguments])
    assert says in capsys.readouterr().err.splitlines()[0]

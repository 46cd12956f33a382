"""``new``: the template, and copies of shipped specs."""

from pathlib import Path

import pytest

from torch_conformance.cli.parser import main
from torch_conformance.language.load import inspect
from torch_conformance.language.read import yaml_source
from torch_conformance.language.read.spec_files import DEFAULTS, discover, files_of_defaults
from torch_conformance.model.diagnostics import errors
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.author.commands.new import explained

EVERY = discover([], [])


def test_the_template_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", str(tmp_path / "first"), "relu-of-sum"]) == ExitCode.OK
    path = tmp_path / "first" / "relu-of-sum.yaml"
    assert str(path) in capsys.readouterr().out
    assert not inspect([path]).problems


def test_a_copy_says_the_same_and_every_key_at_the_top_is_explained() -> None:
    for spec in EVERY:
        document = yaml_source.read(spec.path)
        text = explained(document, spec.area)
        copied = yaml_source.parse(text, path=Path("copy.yaml"))
        data = {key: value for key, value in document.data.items() if key != "covers"}
        assert repr(copied.data) == repr(data), spec.path  # NaN is unequal to itself
        comments = text.count("\n") - len(document.content.decode().splitlines())
        assert comments >= len(data) - 2, spec.path


@pytest.mark.parametrize(
    "asked",
    [
        "padding/mm-out-padded-rows",
        "padding/mm-out-padded-rows[backend=cpu]",
        "specs/padding/mm-out-padded-rows.yaml",
        "*/mm-out-padded-*",
        str(next(spec.path for spec in EVERY if spec.path.stem == "mm-out-padded-rows")),
    ],
)
def test_a_copy_is_valid_with_the_defaults_of_its_area(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    area = tmp_path / "mine"
    assert main(["new", str(area), "--like", asked]) == ExitCode.OK
    path = area / "mm-out-padded-rows.yaml"
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"written: {path}",
        f"written: {area / DEFAULTS}",
    ]
    inspected = inspect([path])
    assert not errors(inspected.problems)
    case = inspected.suite.cases[0]
    assert case.body.settings.config["triton.cudagraphs"] is True, "of the defaults"
    assert "# close: Every tensor of a value is close to its counterpart" in path.read_text()
    # a second spec of the same area finds its defaults there
    assert main(["new", str(area), "second", "--like", asked]) == ExitCode.OK
    # one of another area would change the first
    assert main(["new", str(area), "--like", "codecache/fx-cache-hit"]) == ExitCode.USAGE
    assert "has the defaults of codecache: choose another AREA" in capsys.readouterr().err
    assert not (area / "fx-cache-hit.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--like", "padding/mm-out-paded-rows"], "did you mean 'padding/mm-out-padded-rows'?"),
        (["--like", "padding/*"], "shipped specs match 'padding/*': name one of them"),
        (["--like", "nothing"], "no shipped spec matches 'nothing'"),
        (["Upper Case"], "NAME 'Upper Case'"),
        ([], "NAME is missing"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(["new", str(tmp_path / "mine"), *arguments]) == ExitCode.USAGE
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = next(spec for spec in EVERY if any(map(Path.exists, files_of_defaults(spec))))
    (tmp_path / f"{spec.path.stem}.yaml").write_text("kept", encoding="utf-8")
    asked = f"{spec.area}/{spec.path.stem}"
    assert main(["new", str(tmp_path), "--like", asked]) == ExitCode.USAGE
    assert "exists: choose another NAME or AREA" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [f"{spec.path.stem}.yaml"]

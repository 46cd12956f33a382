"""Which files are specs, what their area is, and which defaults they inherit."""

import os
from pathlib import Path

import pytest

from torch_conformance.language.read.spec_files import DefaultsReader, SpecPath, discover
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.model.diagnostics import Diagnostic, UsageError


def write(*names: str, text: str = "") -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def found(*paths: str) -> dict[str, str]:
    """Return the areas of the specs below paths, by name relative to the working folder."""
    problems: list[Diagnostic] = []
    specs = discover([Path(path) for path in paths], problems)
    assert problems == []
    return {str(spec.path.relative_to(Path.cwd())): spec.area for spec in specs}


# -- discovery -------------------------------------------------------------------------------------


def test_the_area_is_the_folder_below_the_path(here: Path) -> None:
    write("suite/top.yaml", "suite/a/x.yaml", "suite/a/b/y.yml")
    assert found("suite") == {"suite/a/b/y.yml": "a/b", "suite/a/x.yaml": "a", "suite/top.yaml": ""}
    assert found("suite/a") == {"suite/a/b/y.yml": "b", "suite/a/x.yaml": ""}
    assert found("suite/a/x.yaml") == {"suite/a/x.yaml": ""}
    assert found(str(here / "suite" / "a")) == {"suite/a/b/y.yml": "b", "suite/a/x.yaml": ""}


def test_a_shipped_spec_has_one_area_however_it_is_named() -> None:
    specs = folder("specs")
    area = next(path for path in sorted(specs.iterdir()) if path.is_dir())
    spec = sorted(area.glob("[!_]*.yaml"))[0]
    every: list[Diagnostic] = []
    for path in (
        specs,
        area,
        spec,
        Path(os.path.relpath(spec)),
        area / ".." / area.name / spec.name,
    ):
        (area_found,) = {one.area for one in discover([path], every) if one.path == spec.resolve()}
        assert area_found == area.name
    assert {one.path for one in discover([], every)} == {
        one.path for one in discover([specs], every)
    }
    assert every == []


def test_what_is_no_spec_is_passed_over(here: Path) -> None:
    write(
        "suite/x.yaml",
        "suite/_defaults.yaml",
        "suite/_draft.yaml",
        "suite/.hidden.yaml",
        "suite/.git/x.yaml",
        "suite/_old/x.yaml",
    )
    write(
        "suite/backends.yaml",
        "suite/waivers.yaml",
        "suite/x.yaml.bak",
        "suite/README.md",
        "suite/yaml",
        "suite/x.json",
    )
    assert found("suite") == {"suite/x.yaml": ""}


def test_a_file_is_taken_once_and_the_first_path_says_its_area(here: Path) -> None:
    write("suite/a/x.yaml", "suite/y.yaml")
    assert found("suite", "suite/a", "suite/a/x.yaml", "suite/../suite/a/./x.yaml") == {
        "suite/a/x.yaml": "a",
        "suite/y.yaml": "",
    }
    assert found("suite/a/x.yaml", "suite") == {"suite/a/x.yaml": "", "suite/y.yaml": ""}


def test_a_link_to_a_folder_of_the_same_project_is_followed(here: Path) -> None:
    write("project/far/x.yaml", "project/suite/y.yaml", "project/pyproject.toml")
    Path("project/suite/near").symlink_to("../far")
    assert found("project/suite") == {
        "project/suite/near/x.yaml": "near",
        "project/suite/y.yaml": "",
    }
    assert found("project/suite/near") == {"project/suite/near/x.yaml": ""}


@pytest.mark.parametrize(
    "name",
    [
        "a[1].yaml",
        "a*.yaml",
        "a?.yaml",
        "a,b.yaml",
        "a=b.yaml",
        "a%41.yaml",
        "a\tb.yaml",
        "[x]/a.yaml",
    ],
)
def test_names_that_mean_something_in_ids_and_globs(name: str, here: Path) -> None:
    write(f"suite/{name}", "suite/ä b-c_d.e+f.yaml")
    problems: list[Diagnostic] = []
    assert len(discover([Path("suite")], problems)) == 2
    (problem,) = problems
    assert problem.code == "character-in-a-file-name"


@pytest.mark.parametrize("paths", [["nothing"], ["empty"], ["suite", "empty"], ["suite/x.yaml/y"]])
def test_a_path_that_names_no_spec_is_wrong_usage(paths: list[str], here: Path) -> None:
    write("suite/x.yaml")
    Path("empty").mkdir()
    with pytest.raises(UsageError):
        discover([Path(path) for path in paths], [])


# -- defaults --------------------------------------------------------------------------------------


def chain(spec: str, root: str, reader: DefaultsReader | None = None) -> list[str]:
    """Return the defaults of a spec by their tags, outermost first."""
    reader = reader or DefaultsReader()
    documents = reader.of(SpecPath(path=Path(spec).absolute(), root=Path(root).absolute()))
    assert documents is not None
    return [document.data["tags"][0] for document in documents]


def defaults(*places: str) -> None:
    for place in places:
        write(
            "suite/" + place.replace("__", "/").removeprefix("top") + "/_defaults.yaml",
            text=f"tags: [{place}]\n",
        )


def test_defaults_are_inherited_from_each_folder_above(here: Path) -> None:
    defaults("top", "a", "a__b", "c")
    assert chain("suite/a/b/x.yaml", "suite") == ["top", "a", "a__b"]
    assert chain("suite/a/x.yaml", "suite") == ["top", "a"]
    assert chain("suite/x.yaml", "suite") == ["top"]


def test_a_strangers_defaults_above_the_path_are_not_taken(here: Path) -> None:
    defaults("top", "a")
    assert chain("suite/a/x.yaml", "suite/a") == ["a"]


@pytest.mark.parametrize("mark", ["pyproject.toml", "backends.yaml", ".git"])
def test_within_a_project_it_does_not_matter_which_path_was_given(mark: str, here: Path) -> None:
    defaults("top", "a", "a__b")
    write("_defaults.yaml", text="tags: [above]\n")
    write(f"suite/{mark}")
    assert (
        chain("suite/a/b/x.yaml", "suite/a/b")
        == chain("suite/a/b/x.yaml", "suite")
        == ["top", "a", "a__b"]
    )


def test_a_mistake_in_defaults_is_told_once_and_concerns_all_below(here: Path) -> None:
    defaults("top", "a")
    write("suite/a/_defaults.yaml", text="config: {freezing: true}\nlabels: [x]\n")
    reader = DefaultsReader()
    root = Path("suite").absolute()
    below = [
        SpecPath(path=root / "a" / name, root=root) for name in ("x.yaml", "y.yaml", "b/z.yaml")
    ]
    assert [reader.of(spec) for spec in below] == [None, None, None]
    assert reader.of(SpecPath(path=root / "x.yaml", root=root)) is not None
    assert [problem.code for problem in reader.problems] == ["unknown-key"]

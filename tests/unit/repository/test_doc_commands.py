"""The commands of the documents: each is parsed by the real parser, its files and globs are there,
and what is quick is run.
"""

import ast
import functools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fences import CI, ROOT, Fence, every_fence, home
from torch_conformance.cli.parser import main, parser
from torch_conformance.language.load import load
from torch_conformance.matching.patterns import glob
from torch_conformance.model.case import Case
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.attest.profiles import find_profile

FENCES = every_fence()


def lines_of_pipeline(fence: Fence) -> list[str]:
    """Return the lines that the jobs of a pipeline execute in a shell."""
    match fence.mark:
        case "workflow":
            jobs = yaml.safe_load(fence.text)["jobs"].values()
            return [
                line
                for job in jobs
                for step in job["steps"]
                for line in step.get("run", "").splitlines()
            ]
        case "gitlab":
            document = yaml.safe_load(fence.text)
            jobs = [job for job in document.values() if isinstance(job, dict) and "script" in job]
            return [
                *document["default"]["before_script"],
                *(line for job in jobs for line in [*job["script"], *job.get("after_script", [])]),
            ]
        case _:
            return re.findall(r"(?m)^ *sh '([^']*)'$", fence.text)


def lines_of(fence: Fence) -> list[list[str]]:
    if fence.mark in CI:
        return [shlex.split(line) for line in lines_of_pipeline(fence)]
    return [
        words for line in fence.text.splitlines() if (words := shlex.split(line, comments=True))
    ]


def simple_commands(words: list[str]) -> Iterator[list[str]]:
    """Yield the commands of a line that ``&&`` joins, without the variables before each."""
    part: list[str] = []
    for word in [*words, "&&"]:
        if word != "&&":
            part.append(word)
            continue
        while part and re.fullmatch(r"[A-Z_]+=\S+", part[0]):
            del part[0]
        yield part
        part = []


COMMANDS = [
    pytest.param(fence, command, id=f"{fence} {' '.join(command[:2])}")
    for fence in FENCES
    if fence.mark in ("commands", "command-run", "command-test", *CI)
    for words in lines_of(fence)
    for command in simple_commands(words)
]


@pytest.mark.parametrize(("fence", "command"), COMMANDS)
def test_every_command_exists(
    fence: Fence, command: list[str], site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home(site, fence.page)
    monkeypatch.chdir(place)
    program, arguments = command[0].rpartition("/")[2], command[1:]
    match program:
        case "torch-conformance":
            check_own_command(arguments)
        case "python" | "python3":
            check_python(arguments)
        case "pip":
            check_pip(arguments)
        case "nox":
            assert arguments[0] == "-s"
            assert set(arguments[1:]) <= sessions(), f"{fence}: noxfile.py has no such session"
        case "openssl":
            assert arguments[0] in ("genpkey", "pkey")
        case "mkdocs":
            assert arguments[0] in ("build", "serve")
        case "pytest":
            assert "--conformance" in arguments
            assert all((ROOT / path).exists() for path in arguments[1:2])
        case "pre-commit":
            assert arguments in (["install"], ["run", "--all-files"])
            assert (ROOT / ".pre-commit-config.yaml").is_file()
        case "ray":
            assert arguments[:2] == ["start", "--head"]
        case "rm":
            assert arguments[0] == "-rf"
        case "." | "cat" | "export":
            assert len(arguments) == 1
        case _:
            pytest.fail(f"{fence}: no test knows the program '{program}'")


def check_own_command(arguments: list[str]) -> None:
    """Parse by the real parser; paths are files of the page or of the repository; globs and
    backends select some case.
    """
    if arguments == ["--version"]:
        return
    parsed = vars(parser().parse_args(arguments))
    if parsed["command"] in ("bless", "merge", "waive", "diff", "new", "schema") or (
        parsed["command"] == "audit" and not parsed["targets"]
    ):
        return
    paths = [Path(path) for path in parsed.get("paths", parsed.get("targets", []))]
    paths = [path.absolute() if path.exists() else ROOT / path for path in paths]
    assert all(path.exists() for path in paths), arguments
    is_of_cases = parsed["command"] != "lint"
    globs = [
        *(parsed.get("select", []) if is_of_cases else ()),
        *([parsed["case"]] if "case" in parsed else []),
    ]
    if globs or parsed.get("backend"):
        extra = tuple(path.absolute() for path in parsed.get("backends", []))
        cases = cases_of(*paths, backends=extra)
        for pattern in globs:
            assert any(glob(pattern).fullmatch(case.id) for case in cases), pattern
        for name in parsed.get("backend", []):
            assert any(case.backend == name for case in cases), name
    for path in parsed.get("waivers", []):
        assert path.is_file(), path
    if parsed.get("profile"):
        assert find_profile(parsed["profile"]).is_file(), parsed["profile"]
    if parsed["command"] == "lint" and parsed["paths"]:
        assert main(arguments) == ExitCode.OK
    if parsed["command"] in ("validate", "list", "explain") and (
        parsed.get("paths") or is_first(parsed["command"], arguments)
    ):
        assert main(arguments) == ExitCode.OK


OF_SHIPPED_SPECS: set[tuple[str, ...]] = set()


def is_first(command: str, arguments: list[str]) -> bool:
    """Whether no command with the same options was executed yet: without a path, each reads all
    shipped specs.
    """
    key = (command, *sorted(word for word in arguments if word.startswith("-")))
    is_new = key not in OF_SHIPPED_SPECS
    OF_SHIPPED_SPECS.add(key)
    return is_new


@functools.cache
def cases_of(*paths: Path, backends: tuple[Path, ...]) -> tuple[Case, ...]:
    """Return the cases of absolute paths, or of the shipped specs."""
    return tuple(load(list(paths), list(backends)).cases)


def check_python(arguments: list[str]) -> None:
    if arguments[0] != "-m":
        assert (ROOT / arguments[0]).is_file() or Path(arguments[0]).is_file(), arguments
        return
    if arguments[1] not in ("venv", "pytest", "build", "mypy"):
        assert any(
            (folder / arguments[1].replace(".", "/")).with_suffix(suffix).exists()
            for folder in (ROOT, ROOT / "runner")
            for suffix in ("", ".py")
        ), arguments


def check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    if "-c" in arguments:
        assert (ROOT / arguments[arguments.index("-c") + 1]).is_file()
    package = next(word for word in arguments if word.startswith((".[", "torch-conformance")))
    extras = re.findall(r"[a-z]+", package.partition("[")[2].partition("]")[0])
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    assert set(extras) <= set(known), extras


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text("utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list
    }

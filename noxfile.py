"""Sessions for contributors: ``nox -s tests lint types docs build``.

``faults`` and ``mutants`` change torch and take long.
"""

import functools
import pathlib
import re
import shutil

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "types", "docs", "build", "tests"]
nox.options.reuse_existing_virtualenvs = True

PINNED = ("-c", "constraints.txt")
"""The tested torch, in every session that imports it."""

PROJECT = nox.project.load_toml("pyproject.toml")["project"]
RUNTIME = [
    requirement for requirement in PROJECT["dependencies"] if not requirement.startswith("torch")
]
"""What the runner's own process needs."""


def named(*names: str) -> list[str]:
    """Return the requirements of the extra ``test`` with these names, so that versions are declared
    only in pyproject.toml.
    """
    found = {
        re.split("[<>=~]", requirement)[0]: requirement
        for requirement in PROJECT["optional-dependencies"]["test"]
    }
    return [found[name] for name in names]


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments after -- go to pytest."""
    session.install(*PINNED, "-e", ".[test,triton]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """Run every test, those marked ``nightly`` and those of ``tools`` too."""
    session.install(*PINNED, "-e", ".[test,triton]")
    session.run(
        "python", "-m", "pytest", "-n", "auto", "-m", "", "tests", "tools/tests", *session.posargs
    )


def suite(session: nox.Session, minor: str) -> None:
    """Run the default suite with the latest torch of a minor; arguments after -- go to run.

    All but 2.13 bring 5 GB of CUDA libraries.
    """
    session.install("-e", ".[test]", f"torch=={minor}.*", "triton")
    session.run(
        "torch-conformance",
        "run",
        "--out",
        f"reports/suite-{minor}",
        *session.posargs,
    )


for each in ("2.11", "2.12", "2.13", "2.14"):
    nox.session(
        functools.update_wrapper(functools.partial(suite, minor=each), suite), name=f"suite-{each}"
    )


def run_tests_without_torch(session: nox.Session) -> None:
    """Run the tests that do not run torch; arguments after -- go to pytest."""
    marks = "not torch and not nightly"
    session.run(*"python -m pytest -n auto tests/unit -m".split(), marks, *session.posargs)


@nox.session(name="python", python=["3.11", "3.12", "3.13"])
def other_python(session: nox.Session) -> None:
    """Run the tests that do not run torch, and a first spec, with one version of Python."""
    session.install(*PINNED, "-e", ".[test,triton]")
    run_tests_without_torch(session)
    session.run(
        "torch-conformance",
        "run",
        "specs/basics/addmm-matmul-backward.yaml",
        "--backend",
        "cpu",
        "--out",
        session.create_tmp() + "/run",
    )


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests that do not run torch with the lowest version of each dependency."""
    extras = PROJECT["optional-dependencies"]
    tools = named(
        *"pytest pytest-xdist pytest-timeout junitparser lxml markdown-it-py numpy".split()
    )
    needs = [
        *PROJECT["dependencies"],
        *extras["triton"],
        *extras["remote"],
        *extras["submit"],
        *tools,
    ]
    session.install("-e", ".", "--no-deps")
    session.install(*(need.replace(">=", "==") for need in needs))
    run_tests_without_torch(session)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install(*named("ruff"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, without torch: ``stubs`` has the types of tensors."""
    session.install(
        *RUNTIME, *named("mypy", "types-PyYAML"), *PROJECT["optional-dependencies"]["remote"]
    )
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site; a broken link or anchor is an error."""
    session.install(*RUNTIME, *PROJECT["optional-dependencies"]["docs"])
    session.run("python", "-m", "tools.generate_docs")
    site = pathlib.Path(session.create_tmp()) / "site"
    session.run(
        "mkdocs", "build", "--strict", "--site-dir", str(site), env={"NO_MKDOCS_2_WARNING": "1"}
    )


@nox.session
def build(session: nox.Session) -> None:
    """Build sdist and wheel in an empty folder, and check what is in them."""
    session.install(*named("build"))
    folder = pathlib.Path(session.create_tmp()) / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(folder))
    session.run("python", "tools/distributions.py", str(folder))


@nox.session
def faults(session: nox.Session) -> None:
    """Plant each fault of the catalogue in torch; arguments after -- go to tools.faults."""
    session.install(*PINNED, "-e", ".[test,triton]")
    session.run("python", "-m", "tools.faults", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant a sample of small changes in torch; arguments after -- go to tools.mutants."""
    session.install(*PINNED, "-e", ".[test,triton]")
    folder = session.create_tmp()
    quick = {"QUICK_COMPILER": f"{folder}/headers"}
    session.run(
        "python",
        "-m",
        "tools.mutants",
        *(session.posargs or ("--sample", "60", "--cases", "4")),
        env=quick,
    )

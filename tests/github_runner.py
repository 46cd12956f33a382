"""Executes a GitHub workflow on this machine. GitHub's own runner needs GitHub, and ``act`` needs containers.

It knows what the workflow of the documents uses: a matrix of one key, ``run`` in bash, the conditions of a step, and the actions that check
out, cache, upload and download. Anything else is an error, so that a new step is not silently left out. What each action refuses is
refused here.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

CONDITIONS: Mapping[str, Callable[[bool], bool]] = {
    "success()": lambda well: well,
    "always()": lambda _: True,
    "!cancelled()": lambda _: True,
}

REFUSED_NAMES = re.compile(r'[":<>|*?\r\n]')
"""What actions/upload-artifact refuses in the name of a file."""


@dataclass
class GitHub:
    """What outlives a job: the caches, the artifacts, the alerts of code scanning; and what the jobs printed."""

    project: Path
    home: Path
    environment: Mapping[str, str]
    linked: Mapping[str, str]
    """Commands that stand in place of those that install."""
    run_id: str = "1"
    caches: dict[str, Path] = field(default_factory=dict)
    artifacts: dict[str, Path] = field(default_factory=dict)
    results: dict[str, bool] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def workflow(self, text: str) -> dict[str, bool]:
        """Execute the jobs in their order; return which of them succeeded."""
        for name, job in yaml.safe_load(text)["jobs"].items():
            needed = job.get("needs", [])
            well = all(self.results[one] for one in ([needed] if isinstance(needed, str) else needed))
            if not _holds(job.get("if", "success()"), well):
                continue
            points = _points(job.get("strategy", {}).get("matrix", {}))
            copies = [self._job(f"{name}{number or ''}", job, point) for number, point in enumerate(points)]
            self.results[name] = all(copies)
        return self.results

    def _job(self, name: str, job: Mapping[str, Any], point: Mapping[str, str]) -> bool:
        """Execute the steps of a job in a workspace of its own, as on a runner of its own."""
        place = self.home / name / "workspace"
        place.mkdir(parents=True)
        summary = self.home / name / "summary.md"
        summary.touch()
        variables = {**self.environment, "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(place)}
        variables |= {"GITHUB_STEP_SUMMARY": str(summary)} | {key: self._filled(value, point) for key, value in job.get("env", {}).items()}
        well, log = True, ""
        for step in job["steps"]:
            assert set(step) <= {"uses", "run", "with", "if"}, step
            if not _holds(step.get("if", "success()"), well):
                continue
            if "run" in step:
                done = self._shell(self._filled(step["run"], point), place, variables)
                well, log = well and done.returncode == 0, log + done.stdout
            else:
                with_ = {key: self._filled(value, point) for key, value in step.get("with", {}).items()}
                ACTIONS[step["uses"]](self, place, with_)
        self.logs[name], self.summaries[name] = log, summary.read_text("utf-8")
        return well

    def _shell(self, text: str, place: Path, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        lines = [next((new for old, new in self.linked.items() if old in line), line) for line in text.splitlines()]
        command = ["bash", "-e", "-c", "\n".join(lines)]
        merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, cwd=place, env={**variables}, text=True, check=False, timeout=600, **merged)  # type: ignore[call-overload,no-any-return]  # one stream, as a log of GitHub is

    def _filled(self, value: object, point: Mapping[str, str]) -> str:
        known = {"github.run_id": self.run_id} | {f"matrix.{key}": found for key, found in point.items()}
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: known[found[1]], str(value))


def _points(matrix: Mapping[str, list[object]]) -> list[dict[str, str]]:
    assert len(matrix) <= 1, matrix
    return [{key: str(value)} for key, values in matrix.items() for value in values] or [{}]


def _holds(condition: str, well: bool) -> bool:
    return CONDITIONS[re.sub(r"^\$\{\{ (.*) \}\}$", r"\1", condition)](well)


def _checkout(github: GitHub, place: Path, with_: Mapping[str, str]) -> None:
    assert not with_
    shutil.copytree(github.project, place, dirs_exist_ok=True)


def _restore(github: GitHub, place: Path, with_: Mapping[str, str]) -> None:
    """Restore the cache of the key, or the last one whose key begins with ``restore-keys``."""
    assert set(with_) == {"path", "key", "restore-keys"}
    found = [key for key in github.caches if key == with_["key"]]
    found += [key for key in reversed(github.caches) if key.startswith(with_["restore-keys"])]
    if found:
        shutil.copy(github.caches[found[0]], place / with_["path"])


def _save(github: GitHub, place: Path, with_: Mapping[str, str]) -> None:
    assert with_["key"] not in github.caches, "a cache is never overwritten"
    kept = github.home / "caches" / with_["key"]
    kept.parent.mkdir(exist_ok=True)
    github.caches[with_["key"]] = Path(shutil.copy(place / with_["path"], kept))


def _upload(github: GitHub, place: Path, with_: Mapping[str, str]) -> None:
    """Upload files and folders, relative to what is above all of them; a folder alone is the root itself."""
    assert with_["name"] not in github.artifacts, "two artifacts of one name are refused"
    wanted = [place / line for line in with_["path"].splitlines()]
    there = [path for path in wanted if path.exists()]
    github.warnings += [f"no file at {path}" for path in wanted if path not in there]
    root = Path(os.path.commonpath(wanted)) if len(wanted) > 1 else wanted[0]
    kept = github.home / "artifacts" / with_["name"]
    for path in there:
        for file in [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]:
            relative = file.relative_to(root)
            assert not REFUSED_NAMES.search(str(relative)), relative
            assert not any(part.startswith(".") for part in relative.parts), f"hidden files are left out: {relative}"
            (kept / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept / relative)  # without its permissions, as in an archive of GitHub
    github.artifacts[with_["name"]] = kept


def _download(github: GitHub, place: Path, with_: Mapping[str, str]) -> None:
    for name, kept in github.artifacts.items():
        if fnmatch(name, with_["pattern"]):
            shutil.copytree(kept, place / with_["path"] / name)


ACTIONS: Mapping[str, Callable[[GitHub, Path, Mapping[str, str]], None]] = {
    "actions/checkout@v4": _checkout,
    "actions/setup-python@v5": lambda *_: None,  # the jobs take the Python of the tests
    "actions/cache/restore@v4": _restore,
    "actions/cache/save@v4": _save,
    "actions/upload-artifact@v4": _upload,
    "actions/download-artifact@v4": _download,
}

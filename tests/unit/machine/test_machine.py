"""The installed torch is read from files, and versions are compared by their release numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

from torch_conformance.machine import capabilities
from torch_conformance.machine.installed_torch import (
    InstalledTorch,
    installed_torch,
    no_torch_reason,
    release,
    torch_at,
    version_facts,
)
from torch_conformance.model.diagnostics import UsageError


def package(folder: Path, text: str) -> Path:
    root = folder / "torch"
    root.mkdir()
    (root / "version.py").write_text(text)
    return root


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.13.0", (2, 13, 0)),
        ("2.13.0+cu130", (2, 13, 0)),
        ("2.14.0a0+gitabc", (2, 14, 0)),
        ("2.14.0.dev20260901+rocm7.1", (2, 14, 0)),
        ("2.13.1rc2", (2, 13, 1)),
        ("2.13", (2, 13)),
        ("2.13.0.post1", (2, 13, 0)),
        ("10.0.12", (10, 0, 12)),
    ],
)
def test_release(version: str, expected: tuple[int, ...]) -> None:
    assert release(version) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__version__ = None\n",
        "__version__ = 'unknown'\n",
        "__version__ = make()\n",
        "git_version = 'abc'\n",
        "__version__ = (\n",
    ],
)
def test_torch_without_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the torch in here"):
        version_facts(text, "here")


def test_torch_at(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        "from typing import Optional\n__version__ = '2.12.0+cu130'\ndebug = False\ncuda: "
        "Optional[str] = '13.0'\n"
        "git_version = 'abc'\nhip: Optional[str] = None\n",
    )
    assert torch_at(root) == InstalledTorch(
        version="2.12.0+cu130",
        minor="2.12",
        root=root,
        builds={"cuda": "13.0", "hip": None, "xpu": None},
        git="abc",
    )


def test_installed_torch_is_found_and_not_imported(tmp_path: Path) -> None:
    root = package(tmp_path, "__version__ = '2.12.0'\n")
    (root / "__init__.py").write_text("raise SystemExit('imported')\n")
    program = "import sys; sys.path.insert(0, sys.argv[1])\n"
    program += (
        "from torch_conformance.machine.installed_torch import "
        "installed_torch\nprint(installed_torch().root)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=240,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(root)), done.stderr


def test_package_named_torch_without_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert installed_torch() is None
    assert no_torch_reason().startswith(
        f"torch is not installed: {tmp_path / 'torch'} has no version.py"
    )
    assert capabilities.inspect_files(None).no_torch == no_torch_reason()

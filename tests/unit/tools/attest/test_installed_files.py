"""How many files of the installed torch differ from the RECORD of its wheel."""

import base64
from hashlib import sha256
from pathlib import Path

import pytest

from torch_conformance.tools.attest.installed_files import changed_files


def entry(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


FILES = {"torch/same.py": b"x = 1\n", "torch/lib.so": b"\0" * 9, "torch/edited.py": b"y = 1\n"}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"torch/edited.py": b"y = 2\n"}, 1),
        ({"torch/edited.py": b"y = 2\n", "torch/lib.so": b"\0" * 10}, 2),
        ({"torch/same.py": None}, 1),
    ],
)
def test_changed_and_missing_files_are_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, bytes | None],
    count: int,
) -> None:
    names = {"METADATA": "Name: torch\nVersion: 2.99\n", "RECORD": ""}
    names["RECORD"] = "\n".join([*(entry(*item) for item in FILES.items()), "torch/cache.pyc,,"])
    for name, text in names.items():
        path = tmp_path / "torch-2.99.dist-info" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for name, data in {**FILES, **changes}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if data is not None:
            (tmp_path / name).write_bytes(data)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    changed_files.cache_clear()
    try:
        assert changed_files() == {"changed_files": f"{count} of 3 files of torch"}
    finally:
        changed_files.cache_clear()

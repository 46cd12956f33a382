"""Makes ``reports/sample`` of a run: ``python -m tools.sample RUN``.

Paths of the machine are cut, and of the cases only what they were judged by is kept. The digests of
files in which a path was cut are those of the cut files, so that ``merge`` and ``audit`` take the
sample for a run.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "reports" / "sample"

_SCRATCH = re.compile(r"/[^\s\"'\\]*/torch-conformance[.-][a-z0-9_]{8}(?=[/\"'\\])")

_KERNEL = re.compile(r"(Linux-[0-9.]+)-[\w.+-]+?(?=-x86_64|-aarch64)")
"""The local part of a kernel's release, which its builder chose."""


def shortened(text: str, run_from: Path) -> str:
    """Return a text without the folders of this machine (Python's, the checkout's, temporary ones)
    and its kernel's own name.
    """
    places = {
        **{
            str(Path(path)): ".../site-packages"
            for path in (*_package_folders(), sysconfig.get_path("purelib"))
        },
        sysconfig.get_path("stdlib"): ".../python",
        sys.prefix: ".../venv",
    }
    for folder, short in sorted(places.items(), key=lambda place: -len(place[0])):
        text = text.replace(folder, short)
    for checkout in {run_from, ROOT}:  # after the environment, which may lie in the checkout
        text = text.replace(f"{checkout}/", "")
    return _KERNEL.sub(r"\1", _SCRATCH.sub(".../scratch", text))


def _package_folders() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


def main(run: Path) -> None:
    """Write the sample in the place of the one that is there, but for its README."""
    run_from = Path(os.path.realpath(run)).parents[1]
    for name in ("cases", "run.jsonl", "junit.xml"):
        path = SAMPLE / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (SAMPLE / "junit.xml").write_text(shortened((run / "junit.xml").read_text(), run_from))
    with (SAMPLE / "run.jsonl").open("w") as journal:
        for line in (run / "run.jsonl").read_text().splitlines():
            result = json.loads(shortened(line, run_from))
            if result["kind"] in ("case", "attempt"):
                _copy(result, run, run_from)
            journal.write(json.dumps(result) + "\n")


def _copy(result: dict[str, Any], run: Path, run_from: Path) -> None:
    """Copy what a case was judged by, and write its digests into the result and those of its
    attempts.
    """
    for part in (result, *result["attempts"]):
        for name in part["evidence"]:
            data = shortened((run / part["folder"] / name).read_text(), run_from).encode()
            path = SAMPLE / part["folder"] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            part["evidence"][name] = hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

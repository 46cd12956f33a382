"""Whether the installed torch and Triton are as their wheels brought them."""

import base64
import functools
from collections.abc import Mapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path


@functools.cache
def changed_files() -> Mapping[str, str]:
    """Return as the fact ``changed_files`` how many files of torch and Triton differ from their
    RECORD: in size, or in the sha256 of a file of Python; empty where there is no RECORD.
    """
    counts = []
    for name in ("torch", "triton"):
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:
            continue
        recorded = [file for file in files if file.hash is not None]
        if recorded:
            changed = sum(map(_is_changed, recorded))
            counts.append(f"{changed} of {len(recorded)} files of {name}")
    return {"changed_files": ", ".join(counts)} if counts else {}


def _is_changed(file: metadata.PackagePath) -> bool:
    try:
        path = Path(file.locate())
        if path.stat().st_size != file.size:
            return True
        digest = sha256(path.read_bytes()).digest() if file.suffix == ".py" else b""
    except OSError:
        return True
    text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return bool(digest and file.hash and file.hash.value != text)

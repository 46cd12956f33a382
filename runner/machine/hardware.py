"""Cores and memory that this process may use, from its CPU affinity, the free memory and the limits of all its control groups."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROOT = Path("/")


def cores(root: Path = _ROOT) -> float:
    """Return the number of usable cores. It may be a fraction, because a container's quota may be a share of one core."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(usable), *_quotas(root)])


def available_memory(root: Path = _ROOT) -> int:
    """Return the available memory in bytes, within the limits of all control groups."""
    available = _fields(root / "proc/meminfo").get("MemAvailable")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole if available is None else available << 10, *_free_in_groups(root)])


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quota of each control group in cores."""
    for group in _groups(root):
        texts = _text(group / "cpu.max").split()
        if len(texts) == 2 and all(map(_is_number, texts)):
            yield int(texts[0]) / int(texts[1])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes of each control group with a limit. Its inactive page cache counts as free."""
    for group in _groups(root):
        limits = [int(text) for name in ("memory.max", "memory.high") if _is_number(text := _text(group / name).strip())]
        used = _text(group / "memory.current").strip()
        if limits and used.isascii() and used.isdecimal():
            yield max(min(limits) - int(used) + _fields(group / "memory.stat").get("inactive_file", 0), 0)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups (version 2), the innermost first.

    In a container the root of the file system may be the group itself, while the path is the host's: absent folders say nothing.
    """
    paths = [line[3:] for line in _text(root / "proc/self/cgroup").splitlines() if line.startswith("0::/")]
    parts = [part for path in paths for part in path.split("/") if part]
    for depth in range(len(parts) if ".." not in parts else 0, -1, -1):
        yield root.joinpath("sys/fs/cgroup", *parts[:depth])


def _fields(path: Path) -> Mapping[str, int]:
    """Return the numbers of a file with lines ``name: number`` or ``name number``."""
    pairs = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and _is_number(pair[1])}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""

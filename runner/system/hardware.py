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
    """Yield the CPU quota of each control group in cores. Version 2 writes it to one file, version 1 to two."""
    for group in _groups(root, "cpu"):
        texts = _text(group / "cpu.max").split() or [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(texts) == 2 and all(map(_is_number, texts)):
            yield int(texts[0]) / int(texts[1])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes of each control group with a limit. Its inactive page cache counts as free."""
    for group in _groups(root, "memory"):
        limits = [_text(group / name).strip() for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
        used = next((text for name in ("memory.current", "memory.usage_in_bytes") if (text := _text(group / name).strip())), "")
        numbers = [int(limit) for limit in limits if _is_number(limit)]
        if numbers and used.isascii() and used.isdecimal():
            cached = _fields(group / "memory.stat")
            yield max(min(numbers) - int(used) + cached.get("total_inactive_file", cached.get("inactive_file", 0)), 0)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups that have the controller, the innermost first, for versions 1 and 2."""
    paths: dict[frozenset[str], str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if path.startswith("/") and ".." not in path.split("/"):
            paths[frozenset() if number == "0" else frozenset(names.split(","))] = path
    for mounted, point, controllers in _mounts(root):
        # version 2 has one tree for all controllers, version 1 one for each set
        mine = next((path for names, path in paths.items() if (controller in names if controllers else not names)), None)
        if mine is None or (controllers and controller not in controllers):
            continue
        # in a container the mount may begin at the group itself, while the path is the host's
        inner = mine.removeprefix(mounted.rstrip("/")) if mine.startswith(mounted) else ""
        parts = [part for part in inner.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(point.lstrip("/"), *parts[:depth])


def _mounts(root: Path) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield for each mount of control groups: the mounted part of the tree, the mount point, and its controllers (none for version 2)."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            yield fields[3], fields[4], frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset()


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

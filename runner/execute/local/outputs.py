"""The files that a worker prints into: however much that is, they fill no disk, and keep their end."""

import contextlib
import ctypes
import os

MOST = 64 << 20
"""Bytes that a case may leave in each of its output files; when there are more, all but the end goes."""

END = 1 << 20
"""Bytes of that end."""

LOST = f"[more than {MOST >> 20} MiB were printed: what stood here is lost]\n".encode("ascii")

_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def bound(descriptor: int) -> bool:
    """Give back the disk under all but the end of a file that somebody writes to; return whether anything went."""
    found = os.fstat(descriptor)
    # a file system may set more aside than there is, and less where there is a hole already
    if min(found.st_blocks * 512, found.st_size) <= MOST:
        return False
    # a hole, because between reading the end and cutting the file off the last line may come
    begin, length = ctypes.c_int64(0), ctypes.c_int64(found.st_size - END)
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, begin, length) != 0:
        _cut(descriptor, found.st_size)  # not every file system knows holes
    return True


def finish(descriptor: int) -> bool:
    """Cut a file that nobody writes to any more to its end, where it is too long; return whether it was."""
    size = os.fstat(descriptor).st_size
    if size <= MOST:
        return False
    _cut(descriptor, size)
    return True


def _cut(descriptor: int, size: int) -> None:
    with contextlib.suppress(OSError):  # a full disk is no reason to end a run
        end = os.pread(descriptor, END, size - END)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, LOST + end)

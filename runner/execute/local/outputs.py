"""Output files of a worker: limits their size, and keeps their end."""

import contextlib
import ctypes
import os

MOST = 64 << 20
"""The maximum size in bytes of each output file; a larger file is cut to its end."""

END = 1 << 20
"""The size of that end in bytes."""

LOST = f"[more than {MOST >> 20} MiB were printed: what stood here is lost]\n".encode("ascii")

_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def bound(descriptor: int) -> bool:
    """Punch a hole into an open output file, up to its end, to free disk space; return whether data was removed."""
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
    """Cut the output file of a finished case to its end if it is too long; return whether it was."""
    size = os.fstat(descriptor).st_size
    if size <= MOST:
        return False
    _cut(descriptor, size)
    return True


def _cut(descriptor: int, size: int) -> None:
    with contextlib.suppress(OSError):  # no space left on the device: the run continues
        end = os.pread(descriptor, END, size - END)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, LOST + end)

"""Output files that are too long: what stays is the end, also where a file system knows no holes, and what is short stays whole."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.execute.local import outputs
from runner.run.artifacts import code_files


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(outputs, "MOST", 1 << 20)
    monkeypatch.setattr(outputs, "END", 1 << 16)
    descriptor = os.open(tmp_path / "stdout.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 24, 0)


def test_what_is_short_stays_whole(file):
    text = b"x" * outputs.MOST
    os.write(file, text)
    assert not outputs.bound(file)
    assert not outputs.finish(file)
    assert content(file) == text


def test_of_a_flood_the_disk_is_given_back_and_no_byte_of_the_end_is_lost(file):
    os.write(file, b"first" * (1 << 20) + b"the end")
    os.fsync(file)
    assert outputs.bound(file)
    assert os.fstat(file).st_blocks * 512 < outputs.MOST
    os.write(file, b", and more")
    assert content(file).endswith(b"firstthe end, and more")
    assert not outputs.bound(file)
    assert outputs.finish(file)
    assert content(file).startswith(outputs.LOST)
    assert b"\0" not in content(file)
    assert content(file).endswith(b"firstthe end, and more")
    assert len(content(file)) == len(outputs.LOST) + outputs.END
    assert not outputs.finish(file)


def test_a_file_system_without_holes_keeps_the_end_too(file, monkeypatch):
    class NoHoles:
        def fallocate(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(outputs, "_libc", NoHoles())
    os.write(file, b"first" * (1 << 20) + b"the end")
    os.fsync(file)
    assert outputs.bound(file)
    os.write(file, b", and more")
    assert content(file).startswith(outputs.LOST)
    assert content(file).endswith(b"firstthe end, and more")


def test_a_full_disk_is_no_error_of_ours(file, monkeypatch):
    os.write(file, b"x" * (2 << 20))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert outputs.finish(file)
    assert os.fstat(file).st_size == 0


def test_files_of_generated_code_come_before_graphs_and_other_names_are_left_out() -> None:
    names = [
        "graph-0-post_grad-1.txt",
        "code-10-0.txt",
        "code-2-1.txt",
        "graph-0-dynamo-0.txt",
        "code-0-joint-0.txt",
        "graph-0-0.txt",
        "x.txt",
    ]
    assert code_files(names) == ("code-2-1.txt", "code-10-0.txt", "graph-0-dynamo-0.txt", "graph-0-post_grad-1.txt")

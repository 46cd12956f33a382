"""``python -m MODULE SOCKET PARENT``: a zygote without torch, whose workers answer at once."""

import os
import time
from pathlib import Path

from torch_conformance.model import protocol
from torch_conformance.worker.process import zygote


def answer(plan: str, descriptor: int, word: str) -> None:
    """Send an observation."""
    os.write(descriptor, protocol.dumps({"observation": {}, "word": word}))


def warm(words: list[str], *, few: bool) -> zygote.Phases:
    """Warm up until the file exists that the environment names; return what was requested."""
    file = os.environ.get("WARM_WHEN")
    while file and not Path(file).exists():
        time.sleep(0.01)
    return {**dict.fromkeys(words, 1.5), "few": float(few)}


def main() -> None:
    zygote.serve(zygote.Zygote(zygote.begin(), answer, zygote.danger_of_threads, warm))


if __name__ == "__main__":
    main()

"""``python -m MODULE SOCKET PARENT``: a zygote without torch, whose workers answer at once."""

import os

from torch_conformance.model import protocol
from torch_conformance.worker.process import zygote


def answer(plan: str, descriptor: int, word: str) -> None:
    """Send an observation."""
    os.write(descriptor, protocol.dumps({"observation": {}, "word": word}))


def main() -> None:
    zygote.serve(zygote.Zygote(zygote.begin(), answer, zygote.danger_of_threads))


if __name__ == "__main__":
    main()

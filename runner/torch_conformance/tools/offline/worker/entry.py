"""Runs one case of a target in a new process, where a fork is not safe: ``python -m
torch_conformance.tools.offline.worker.entry SOCKET PARENT``.
"""

from torch_conformance.tools.offline.worker.zygote import alone

if __name__ == "__main__":
    alone()

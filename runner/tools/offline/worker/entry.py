"""Runs one case of a target in a new process, where a fork is not safe: ``python -m runner.tools.offline.worker.entry SOCKET PARENT``."""

from runner.tools.offline.worker.zygote import alone

if __name__ == "__main__":
    alone()

"""Runs one case of a target in a new process, where a fork is not safe: ``python -m runner.worker.offline.entry SOCKET PARENT``."""

from runner.worker.offline.zygote import alone

if __name__ == "__main__":
    alone()

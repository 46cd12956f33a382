"""Runs one case of a simulated target in a new process: ``python -m runner.worker.offline.simulated_entry SOCKET PARENT``."""

from runner.worker.offline.simulated_zygote import alone

if __name__ == "__main__":
    alone()

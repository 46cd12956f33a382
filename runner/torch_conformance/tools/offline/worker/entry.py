"""Runs one case of a target in a new process, where a fork is not safe: ``python -m
torch_conformance.tools.offline.worker.entry SOCKET PARENT``.
"""

from torch_conformance.tools.offline.worker.zygote import work_until_end

if __name__ == "__main__":
    work_until_end()

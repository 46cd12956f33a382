"""The zygote of one simulated target: installs the simulation around the import of torch, tries the canaries, and forks workers."""

import os
from pathlib import Path
from typing import Any

from runner.core import protocol
from runner.core.protocol import SIMULATED, TARGET
from runner.core.targets import TARGETS, Target
from runner.worker.process import entry, zygote

_MOST = 500
"""Characters of a problem."""


class Simulation:
    """Torch for one simulated target, once it was tried."""

    def __init__(self, target: str) -> None:
        self._facts = _facts(target)

    def work(self, plan: str, descriptor: int, word: str) -> None:
        """Run the case of a plan file. The word ``facts`` requests the result of the canaries instead."""
        if plan.split(" ")[0] == "facts":
            os.write(descriptor, protocol.dumps({"observation": protocol.encode(self._facts), "word": word}))
            return
        from runner.worker.offline import case, simulated_case

        case.run(plan, descriptor, word, simulated_case.run_steps)


def _facts(name: str) -> dict[str, Any]:
    """Return versions, and why the simulation cannot be used: empty where the canaries passed."""
    facts: dict[str, Any] = {"target": name, "problem": "", "canaries": []}
    try:
        install(TARGETS[name], Path(os.environ[SIMULATED]))
        from runner.worker.offline import kernels, simulated_canaries, simulated_case  # noqa: F401 - a fork inherits the last

        facts["versions"] = kernels.versions()
        facts["canaries"] = list(simulated_canaries.NAMES)
        facts["problem"] = next(simulated_canaries.problems(TARGETS[name]), "")[:_MOST]
    except Exception as error:  # the compilers, or a torch that lacks what is replaced, may raise anything
        facts["problem"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MOST]
    return facts


def install(target: Target, folder: Path) -> None:
    """Install the simulation for the rest of the process: the C++ side before torch is imported, the rest before Inductor is."""
    from runner.worker.torch_compat import imports, simulated_codegen, simulated_patches, simulated_shim

    root = simulated_shim.torch_root()
    loaded = simulated_shim.load(root, simulated_shim.built(root, folder), cudnn=target.backend == "cuda")
    import torch

    torch.set_num_threads(1)
    imports.without_monitor_thread()
    loaded.simulate_guard()
    simulated_patches.install(target)
    simulated_codegen.install()


def main() -> None:
    """``python -m runner.worker.offline.simulated_zygote SOCKET PARENT``: install the simulation, try it, then serve."""
    control = zygote.begin()
    simulation = Simulation(os.environ[TARGET])
    zygote.serve(zygote.Zygote(control, simulation.work, zygote.danger_of_threads))


def alone() -> None:
    """Serve one case in a new process."""
    entry.alone(lambda: Simulation(os.environ[TARGET]).work)


if __name__ == "__main__":
    main()

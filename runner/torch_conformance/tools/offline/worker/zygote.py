"""The zygote of one target: tries its compiler with the canaries, and forks a worker for each case.

For a kernel of a spec it imports Triton, and never torch. For a simulated target it installs the
simulation around the import of torch.
"""

import importlib
import os
from pathlib import Path
from typing import Any

from torch_conformance.model import protocol
from torch_conformance.model.protocol import SIMULATED, TARGET
from torch_conformance.model.targets import TARGETS, Target
from torch_conformance.worker.process import entry, zygote
from torch_conformance.worker.process.channel import carry_out, exception_text

_MOST = 500
"""Characters of a problem."""


def compiler() -> entry.Work:
    """Try the compiler for the target that the environment names; return what runs its cases."""
    facts = _facts(TARGETS[os.environ[TARGET]])

    def work(plan: str, descriptor: int, word: str) -> None:
        """Run the case of a plan file.

        The word ``facts`` requests the result of the canaries instead.
        """
        if plan.split(" ")[0] == "facts":
            os.write(
                descriptor, protocol.dumps({"observation": protocol.encode(facts), "word": word})
            )
            return
        module = "simulated_kernels" if SIMULATED in os.environ else "compile_case"
        carry_out(
            plan,
            descriptor,
            word,
            importlib.import_module(f"torch_conformance.tools.offline.worker.{module}").run_steps,
        )

    return work


def _facts(target: Target) -> dict[str, Any]:
    """Return the versions of the compiler, and why it cannot be used: empty where the canaries
    passed.
    """
    facts: dict[str, Any] = {"target": target.name, "problem": "", "canaries": []}
    try:
        if SIMULATED in os.environ:
            install(target, Path(os.environ[SIMULATED]))
        from torch_conformance.tools.offline.worker import compile_case, kernels  # noqa: F401 - imported before the fork, so that no worker imports it again

        facts["versions"] = kernels.versions()
        names: tuple[str, ...] = kernels.CANARIES
        problems = kernels.canary_problems
        if SIMULATED in os.environ:
            from torch_conformance.tools.offline.worker import simulated_kernels

            names, problems = simulated_kernels.CANARIES, simulated_kernels.canary_problems
        facts["canaries"] = list(names)
        facts["problem"] = next(problems(target), "")[:_MOST]
    except Exception as error:
        # the compilers, or a torch that lacks what is replaced, may raise anything
        facts["problem"] = " ".join(exception_text(error).split())[:_MOST]
    return facts


def install(target: Target, folder: Path) -> None:
    """Install the simulation for the rest of the process: the C++ side before torch is imported,
    the rest before Inductor is.
    """
    from torch_conformance.tools.offline.worker import simulated_shim

    loaded = simulated_shim.load(folder, cudnn=target.backend == "cuda")
    import torch

    from torch_conformance.tools.offline.worker import (
        simulated_codegen,
        simulated_patches,
    )  # they import torch
    from torch_conformance.worker.torch_compat import imports

    torch.set_num_threads(1)
    imports.without_monitor_thread()
    loaded.simulate_guard()
    simulated_patches.install(target)
    simulated_codegen.install()


def main() -> None:
    """``python -m torch_conformance.tools.offline.worker.zygote SOCKET PARENT``: try the compiler
    of the target, then serve. There is nothing left to warm up.
    """
    control = zygote.begin()
    zygote.serve(zygote.Zygote(control, compiler(), zygote.danger_of_threads))


def work_until_end() -> None:
    """Serve one case in a new process."""
    entry.work_until_end(compiler)


if __name__ == "__main__":
    main()

"""The executor of cases that are compiled for a GPU that the machine may lack: the local one, with a zygote for each target.

Deadlines, memory limits, the private pipe and the bounded messages are those of the local executor. Kernels are Python of a spec: each
case runs in a fork of its own, and its cache is thrown away with it.
"""

import dataclasses
from pathlib import Path

from runner.core.protocol import SIMULATED
from runner.execute.base import ExecutorSettings
from runner.execute.local.executor import LocalExecutor
from runner.execute.local.spawn import ProcessStarter, environment_for
from runner.plan.resources import Environment

_OF_TRITON = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_")
"""The beginnings of variables that change what Triton compiles, or replace it."""

_OF_INDUCTOR = ("TORCHINDUCTOR_", "TORCH_COMPILE_", "TORCHDYNAMO_", "PYTORCH_TUNABLEOP_")
"""The beginnings of variables that change what Inductor generates. Options of a spec are its ``config``."""


class OfflineStarter(ProcessStarter):
    """Starts the zygote of a target, which its environment names."""

    def _zygote_module(self, wanted: Environment) -> str:
        return "runner.worker.offline.zygote"

    def _worker_module(self, wanted: Environment) -> str:
        return "runner.worker.offline.entry"

    def _variables(self, wanted: Environment, scratch: Path) -> dict[str, str]:
        found = environment_for(wanted, self._threads, scratch)
        kept = {name: value for name, value in found.items() if not name.startswith(_OF_TRITON)}
        if SIMULATED in wanted.variables:
            # one build of the C++ side for all targets of a run, and no device that torch could find
            own = {SIMULATED: str(self._scratch / "simulated"), "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
            own.update(TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"), TORCHINDUCTOR_COMPILE_THREADS="1")
            kept = {**{name: value for name, value in kept.items() if not name.startswith(_OF_INDUCTOR)}, **own}
        # Triton's cache and its dumps lie in the scratch folder; with line information the instructions have the paths of this machine
        own = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_CACHE_DIR": str(scratch / "triton"), "TRITON_HOME": str(scratch)}
        return {**kept, **own}


class OfflineExecutor(LocalExecutor):
    """Compiles for targets on this machine (``runner.execute.base.Executor``)."""

    def __init__(self, settings: ExecutorSettings) -> None:
        own = dataclasses.replace(settings, spares=0, warm_folder=None, keeps_zygotes=True)
        super().__init__(own, make_starter=lambda scratch: OfflineStarter(settings.threads, scratch))

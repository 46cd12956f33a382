"""The executor of targets: the local one, whose zygotes compile for one target each and have no torch.

Deadlines, memory limits, the private pipe and the bounded messages are those of the local executor. Kernels are Python of a spec: each
case runs in a fork of its own, and its cache is thrown away with it.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from runner.core.protocol import SIMULATED
from runner.execute.base import ExecutorSettings
from runner.execute.local.executor import LocalExecutor
from runner.execute.local.spawn import ProcessStarter, environment_for
from runner.plan.jobs import Environment

_OF_TRITON = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_")
"""The beginnings of variables that change what Triton compiles, or replace it."""

_OF_INDUCTOR = ("TORCHINDUCTOR_", "TORCH_COMPILE_", "TORCHDYNAMO_", "PYTORCH_TUNABLEOP_")
"""The beginnings of variables that change what Inductor generates. Options of a spec are its ``config``."""

_OWN = {"TRITON_DISABLE_LINE_INFO": "1"}
"""Without it the instructions have the paths of this machine."""


class OfflineStarter(ProcessStarter):
    """Starts the zygote of a target, which its environment names."""

    def _zygote_module(self, wanted: Environment) -> str:
        return f"runner.worker.offline.{'simulated_' if SIMULATED in wanted.variables else ''}zygote"

    def _worker_module(self, wanted: Environment) -> str:
        return f"runner.worker.offline.{'simulated_' if SIMULATED in wanted.variables else ''}entry"

    def _variables(self, wanted: Environment, scratch: Path) -> dict[str, str]:
        found = environment_for(wanted, self._threads, scratch)
        kept = {name: value for name, value in found.items() if not name.startswith(_OF_TRITON)}
        if SIMULATED in wanted.variables:
            # one build of the C++ side for all targets of a run, and no device that torch could find
            own = {SIMULATED: str(self._scratch / "simulated"), "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
            own.update(TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"), TORCHINDUCTOR_COMPILE_THREADS="1")
            kept = {**{name: value for name, value in kept.items() if not name.startswith(_OF_INDUCTOR)}, **own}
        return {**kept, **_of_scratch(scratch)}


def _of_scratch(scratch: Path) -> Mapping[str, str]:
    """Return Triton's variables: its cache and its dumps lie in the scratch folder."""
    return {**_OWN, "TRITON_CACHE_DIR": str(scratch / "triton"), "TRITON_HOME": str(scratch)}


class OfflineExecutor(LocalExecutor):
    """Compiles for targets on this machine (``runner.execute.base.Executor``)."""

    def __init__(self, settings: ExecutorSettings) -> None:
        own = dataclasses.replace(settings, spares=0, warm_folder=None, keeps_zygotes=True)
        super().__init__(own, make_starter=lambda scratch: OfflineStarter(settings.threads, scratch))

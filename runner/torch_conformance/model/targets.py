"""GPUs that a kernel can be compiled for on a machine that lacks them: one table, with the source
of each number.

A target is written as ``hip:gfx942`` or ``cuda:sm_90``. What is checked for a target is never
executed: its outcome is OFFLINE_PASS or OFFLINE_FAIL, with the level of its evidence. For some
Inductor can generate code without the device (``SIMULATED_TARGETS``): a case calls a function of
its spec, and what is generated for the target is compiled and not executed.
"""

from collections.abc import Mapping
from enum import Enum

from torch_conformance.model.values import frozen

BACKEND = "offline"
"""The backend of cases that are compiled for a target and not executed."""

SIMULATED = "simulated"
"""The backend of cases whose code Inductor generates for a simulated target (``model.targets``)."""

OFFLINE_BACKENDS = (BACKEND, SIMULATED)
"""The backends of specs with ``targets``."""

AXIS = "target"
"""The key that ``targets`` adds to an id, after the backend."""

ISA = {"hip": "amdgcn", "cuda": "ptx"}
"""The stage with the instructions, by the compiler's backend."""

STAGES: Mapping[str, tuple[str, ...]] = {
    backend: ("ttir", "ttgir", "llir", isa) for backend, isa in ISA.items()
}
"""The texts that Triton makes of a kernel, in order, by the compiler's backend.

They are pieces of generated code in this order.
"""

STAGES_OF_VENDOR: Mapping[str, tuple[str, ...]] = {"amd": STAGES["hip"], "nvidia": STAGES["cuda"]}
"""The same by the word of conditions."""

ALL_STAGES = tuple(dict.fromkeys(stage for stages in STAGES.values() for stage in stages))

WRAPPER = "wrapper"
"""The Python that Inductor wrote for a simulated target.

It is the piece of code after those of the compiler.
"""

DEVICE = "cuda"
"""What torch calls the device of every target in conditions."""


class Level(Enum):
    """How much a check without the device shows, from the least.

    The values are the words of reports.
    """

    RENDERED = "O1"
    """Text that Python generated."""
    COMPILED = "O2"
    """A binary for the target: its metadata, registers, spills and shared memory."""
    INSTRUCTIONS = "O3"
    """The instructions in it."""


@frozen
class Target:
    """One GPU as a compiler needs it."""

    name: str
    vendor: str
    """The word of conditions."""
    warp_size: int
    shared: int
    """Bytes of shared memory (LDS) that one block may use at most."""

    @property
    def backend(self) -> str:
        """Triton's name of the compiler."""
        return self.name.partition(":")[0]

    @property
    def arch(self) -> str:
        """The word of conditions: ``gfx942``, ``sm_90``."""
        return self.name.partition(":")[2]

    @property
    def compiler_arch(self) -> str | int:
        """The architecture as Triton takes it."""
        return int(self.arch.removeprefix("sm_")) if self.backend == "cuda" else self.arch

    @property
    def stages(self) -> tuple[str, ...]:
        """The texts that are made of a kernel, in order."""
        return STAGES[self.backend]

    @property
    def isa(self) -> str:
        """The stage with the instructions."""
        return ISA[self.backend]


_KIB = 1 << 10

TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        # AMD, Instruction Set Architecture CDNA2, CDNA3 and CDNA4: wavefronts of 64, LDS for a
        # workgroup
        Target(name="hip:gfx90a", vendor="amd", warp_size=64, shared=64 * _KIB),
        Target(name="hip:gfx942", vendor="amd", warp_size=64, shared=64 * _KIB),
        Target(name="hip:gfx950", vendor="amd", warp_size=64, shared=160 * _KIB),
        # AMD, Instruction Set Architecture RDNA3 and RDNA4; LLVM, AMDGPU, for gfx1151 and gfx1250;
        # Triton compiles wavefronts of 32
        *(
            Target(name=f"hip:{arch}", vendor="amd", warp_size=32, shared=64 * _KIB)
            for arch in ("gfx1100", "gfx1151", "gfx1201")
        ),
        Target(name="hip:gfx1250", vendor="amd", warp_size=32, shared=320 * _KIB),
        # NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability; sm_90
        # as an H200 says (232448)
        Target(name="cuda:sm_80", vendor="nvidia", warp_size=32, shared=163 * _KIB),
        Target(name="cuda:sm_90", vendor="nvidia", warp_size=32, shared=227 * _KIB),
        Target(name="cuda:sm_100", vendor="nvidia", warp_size=32, shared=227 * _KIB),
        Target(name="cuda:sm_120", vendor="nvidia", warp_size=32, shared=99 * _KIB),
    )
}
"""The targets of the language, by name."""

SIMULATED_TARGETS = ("hip:gfx942", "hip:gfx950", "cuda:sm_90", "cuda:sm_100")
"""Those for which Inductor generates code: ``tools/offline/simulated_gpus`` has their properties.
"""

TESTED_MINORS = ("2.13",)
"""The releases of torch that the simulation was tried with.

It replaces many functions of torch, so that another release is refused.
"""

EXAMPLE = "hip:gfx942"
"""The target that messages name."""


def evidence_of(level: str) -> str:
    """Return a level in words: ``O3 instructions``; empty for none."""
    words = {member.value: member.name.lower() for member in Level}
    return f"{level} {words.get(level, 'unknown')}" if level else ""


def simulated(target: str) -> str:
    """Return the name of the simulation of a target, which is not that of the compiler for it."""
    return f"{SIMULATED} {target}"

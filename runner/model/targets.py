"""GPUs that a kernel can be compiled for on a machine that lacks them: one table, with the source of each number.

A target is written as ``hip:gfx942`` or ``cuda:sm_90``. What is checked for a target is never executed: its outcome is OFFLINE_PASS or
OFFLINE_FAIL, with the level of its evidence. For some Inductor can generate code without the device (``PROPERTIES``): a case calls a
function of its spec, and what is generated for the target is compiled and not executed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

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

STAGES: Mapping[str, tuple[str, ...]] = {backend: ("ttir", "ttgir", "llir", isa) for backend, isa in ISA.items()}
"""The texts that Triton makes of a kernel, in order, by the compiler's backend. They are pieces of generated code in this order."""

STAGES_OF_VENDOR: Mapping[str, tuple[str, ...]] = {"amd": STAGES["hip"], "nvidia": STAGES["cuda"]}
"""The same by the word of conditions."""

ALL_STAGES = tuple(dict.fromkeys(stage for stages in STAGES.values() for stage in stages))

WRAPPER = "wrapper"
"""The Python that Inductor wrote for a simulated target. It is the piece of code after those of the compiler."""

BINARIES = {"hip": "hsaco", "cuda": "cubin"}

DEVICE = "cuda"
"""What torch calls the device of every target in conditions."""


class Level(Enum):
    """How much a check without the device shows, from the least. The values are the words of reports."""

    RENDERED = "O1"
    """Text that Python generated."""
    COMPILED = "O2"
    """A binary for the target: its metadata, registers, spills and shared memory."""
    INSTRUCTIONS = "O3"
    """The instructions in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One GPU as a compiler needs it."""

    name: str
    vendor: str
    """The word of conditions."""
    warp_size: int
    shared: int
    """Bytes of shared memory (LDS) that one block may use at most."""
    source: str
    """Where ``shared`` and ``warp_size`` were taken from."""

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
_CDNA3 = "AMD, Instruction Set Architecture CDNA3: wavefronts of 64, 64 KiB of LDS for a workgroup"
_CDNA4 = "AMD, Instruction Set Architecture CDNA4: wavefronts of 64, 160 KiB of LDS for a workgroup"
_RDNA = "AMD, Instruction Set Architecture RDNA3 and RDNA4: Triton compiles wavefronts of 32, 64 KiB of LDS for a workgroup"
_CUDA = "NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability"

_ALL = (
    Target(name="hip:gfx90a", vendor="amd", warp_size=64, shared=64 * _KIB, source="AMD, Instruction Set Architecture CDNA2"),
    Target(name="hip:gfx942", vendor="amd", warp_size=64, shared=64 * _KIB, source=_CDNA3),
    Target(name="hip:gfx950", vendor="amd", warp_size=64, shared=160 * _KIB, source=_CDNA4),
    Target(name="hip:gfx1100", vendor="amd", warp_size=32, shared=64 * _KIB, source=_RDNA),
    Target(name="hip:gfx1201", vendor="amd", warp_size=32, shared=64 * _KIB, source=_RDNA),
    Target(name="cuda:sm_80", vendor="nvidia", warp_size=32, shared=163 * _KIB, source=_CUDA),
    Target(
        name="cuda:sm_90",
        vendor="nvidia",
        warp_size=32,
        shared=227 * _KIB,
        source="torch.cuda.get_device_properties of an NVIDIA H200: shared_memory_per_block_optin 232448",
    ),
    Target(name="cuda:sm_100", vendor="nvidia", warp_size=32, shared=227 * _KIB, source=_CUDA),
    Target(name="cuda:sm_120", vendor="nvidia", warp_size=32, shared=99 * _KIB, source=_CUDA),
)

TARGETS: Mapping[str, Target] = {target.name: target for target in _ALL}
"""The targets of the language, by name."""


EXAMPLE = "hip:gfx942"
"""The target that messages name."""


def evidence_of(level: str) -> str:
    """Return a level in words: ``O3 instructions``; empty for none."""
    words = {known.value: known.name.lower() for known in Level}
    return f"{level} {words.get(level, 'unknown')}" if level else ""


def simulated(target: str) -> str:
    """Return the name of the simulation of a target, beside that of the compiler for it."""
    return f"{SIMULATED} {target}"


TESTED_MINORS = ("2.13",)
"""The releases of torch that the simulation was tried with. It replaces many functions of torch, so that another release is refused."""

_H200 = "torch.cuda.get_device_properties of an NVIDIA H200 with torch 2.11"
_MI300X = "DeviceProperties in code that Inductor generated on an MI300X (torch 2.6 to 2.8)"
_MI350 = "DeviceProperties in code that Inductor generated on an MI350 (torch 2.9 to 2.11)"
_B200 = "DeviceProperties in code that Inductor generated on a B200 (torch 2.8 to 2.11)"
_CDNA3 = "AMD, CDNA3 white paper"
_CDNA4 = "AMD, CDNA4 white paper"
_CUDA = "NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability"
_BLACKWELL = "NVIDIA, Blackwell architecture technical brief"


def _from(source: str, **values: int | str) -> dict[str, int | str]:
    return values


PROPERTIES: Mapping[str, Mapping[str, int | str]] = {
    "hip:gfx942": {
        **_from(_MI300X, multi_processor_count=304, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048),
        **_from(_MI300X, warp_size=64, gcnArchName="gfx942:sramecc+:xnack-", max_threads_per_block=1024),
        **_from(_CDNA3, name="AMD Instinct MI300X", minor=4, total_memory=192 << 30, L2_cache_size=4 << 20),
        **_from(_CDNA3, shared_memory_per_block=64 << 10, shared_memory_per_multiprocessor=64 << 10),
    },
    "hip:gfx950": {
        **_from(_MI350, multi_processor_count=256, major=9, regs_per_multiprocessor=131072, max_threads_per_multi_processor=2048),
        **_from(_MI350, warp_size=64, gcnArchName="gfx950:sramecc+:xnack-", max_threads_per_block=1024),
        **_from(_CDNA4, name="AMD Instinct MI355X", minor=5, total_memory=288 << 30, L2_cache_size=4 << 20),
        **_from(_CDNA4, shared_memory_per_block=160 << 10, shared_memory_per_multiprocessor=160 << 10),
    },
    "cuda:sm_90": {
        **_from(_H200, multi_processor_count=132, major=9, minor=0, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048),
        **_from(_H200, warp_size=32, gcnArchName="NVIDIA H200", max_threads_per_block=1024, name="NVIDIA H200"),
        **_from(_H200, total_memory=150109880320, L2_cache_size=62914560, shared_memory_per_block=49152),
        **_from(_H200, shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472),
    },
    "cuda:sm_100": {
        **_from(_B200, multi_processor_count=148, major=10, minor=0, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048),
        **_from(_B200, warp_size=32, gcnArchName="NVIDIA B200", max_threads_per_block=1024, name="NVIDIA B200"),
        **_from(_BLACKWELL, total_memory=180 << 30, L2_cache_size=126 << 20),
        **_from(_CUDA, shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10),
        **_from(_CUDA, shared_memory_per_multiprocessor=228 << 10),
    },
}
"""What torch reads of the device, by target. A property that is not here is absent: torch raises where it reads it."""

VERSIONS: Mapping[str, tuple[str, str]] = {"hip": ("hip", "7.2.0"), "cuda": ("cuda", "13.0")}
"""By the compiler's backend: the attribute of ``torch.version`` that is set, and its value. The other is None."""

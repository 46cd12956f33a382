"""The GPUs that Inductor can generate code for without the device: what torch reads of each, with
the source of each number.
"""

from collections.abc import Mapping

PROPERTIES: Mapping[str, Mapping[str, int | str]] = {
    "hip:gfx942": {
        # DeviceProperties in code that Inductor generated on an MI300X (torch 2.6 to 2.8)
        "multi_processor_count": 304,
        "major": 9,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "warp_size": 64,
        "gcnArchName": "gfx942:sramecc+:xnack-",
        "max_threads_per_block": 1024,
        # AMD, CDNA3 white paper
        "name": "AMD Instinct MI300X",
        "minor": 4,
        "total_memory": 192 << 30,
        "L2_cache_size": 4 << 20,
        "shared_memory_per_block": 64 << 10,
        "shared_memory_per_multiprocessor": 64 << 10,
    },
    "hip:gfx950": {
        # DeviceProperties in code that Inductor generated on an MI350 (torch 2.9 to 2.11)
        "multi_processor_count": 256,
        "major": 9,
        "regs_per_multiprocessor": 131072,
        "max_threads_per_multi_processor": 2048,
        "warp_size": 64,
        "gcnArchName": "gfx950:sramecc+:xnack-",
        "max_threads_per_block": 1024,
        # AMD, CDNA4 white paper
        "name": "AMD Instinct MI355X",
        "minor": 5,
        "total_memory": 288 << 30,
        "L2_cache_size": 4 << 20,
        "shared_memory_per_block": 160 << 10,
        "shared_memory_per_multiprocessor": 160 << 10,
    },
    "cuda:sm_90": {
        # torch.cuda.get_device_properties of an NVIDIA H200 with torch 2.11
        "multi_processor_count": 132,
        "major": 9,
        "minor": 0,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "warp_size": 32,
        "gcnArchName": "NVIDIA H200",
        "max_threads_per_block": 1024,
        "name": "NVIDIA H200",
        "total_memory": 150109880320,
        "L2_cache_size": 62914560,
        "shared_memory_per_block": 49152,
        "shared_memory_per_block_optin": 232448,
        "shared_memory_per_multiprocessor": 233472,
    },
    "cuda:sm_100": {
        # DeviceProperties in code that Inductor generated on a B200 (torch 2.8 to 2.11)
        "multi_processor_count": 148,
        "major": 10,
        "minor": 0,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "warp_size": 32,
        "gcnArchName": "NVIDIA B200",
        "max_threads_per_block": 1024,
        "name": "NVIDIA B200",
        # NVIDIA, Blackwell architecture technical brief
        "total_memory": 180 << 30,
        "L2_cache_size": 126 << 20,
        # NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_block_optin": 227 << 10,
        "shared_memory_per_multiprocessor": 228 << 10,
    },
}
"""What torch reads of the device, by target.

A property that is not here is absent: torch raises where it reads it.
"""

VERSIONS: Mapping[str, tuple[str, str]] = {"hip": ("hip", "7.2.0"), "cuda": ("cuda", "13.0")}
"""By the compiler's backend: the attribute of ``torch.version`` that is set, and its value.

The other is None.
"""

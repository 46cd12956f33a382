"""What the names of torch's tests mean: dotted paths, dtypes, devices."""

import ast

from runner.language.authoring.reading import Reading

DTYPES = {
    **{name: name for name in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")},
    **{name: name for name in ("int64", "int32", "int16", "int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2")},
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
"""The dtypes of the language by torch's names for them."""

SIZES = {
    **dict.fromkeys(("float64", "int64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
"""The bytes of an element of each dtype."""

_GPU_NAMES = frozenset(["GPU_TYPE", "DEVICE_TYPE"])
"""Names of torch's test helpers for the kind of GPU."""

CONFIG_MODULES = {
    "torch._inductor.config": "config",
    "torch._dynamo.config": "dynamo_config",
    "torch._functorch.config": "functorch_config",
}
"""The modules with options, and the section of a spec for each."""


def dotted(node: ast.expr, reading: Reading) -> str:
    """Return the dotted path of an imported name or of an attribute of it; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    from runner.language.authoring.values import Dotted

    local = reading.scope.get(node.id)
    if isinstance(local, Dotted):
        head = local.path
    elif local is not None:
        return ""
    elif node.id in reading.file.imports:
        head = reading.file.imports[node.id]
    elif node.id in ("torch", "unittest", "itertools", "functools"):
        head = node.id
    else:
        assigned = reading.file.definitions.get(node.id)
        if not (isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.Attribute) and parts):
            return ""
        head = dotted(assigned.value, reading)
        if not head:
            return ""
    return ".".join([head, *reversed(parts)])


def device_named(text: str) -> str:
    """Return the kind of a device by its text; empty for other texts."""
    kind = text.partition(":")[0]
    if kind in ("cuda", "xpu", "gpu"):
        return "gpu" if text in (kind, f"{kind}:0") else ""
    return "cpu" if text == "cpu" else ""


def is_gpu_name(path: str) -> bool:
    """Whether an imported name is the kind of GPU."""
    return path.rpartition(".")[2] in _GPU_NAMES


_ATOMS = {
    **dict.fromkeys(
        (
            *("HAS_CUDA", "HAS_GPU", "TEST_CUDA", "RUN_CUDA", "RUN_GPU", "HAS_CUDA_AND_TRITON", "HAS_GPU_AND_TRITON", "HAS_MULTIGPU_1"),
            *("torch.cuda.is_available()", "HAS_TRITON", "has_triton()", "HAS_XPU_AND_TRITON", "SM53OrLater", "RUN_CUDA_HALF"),
        ),
        "gpu",
    ),
    **dict.fromkeys(("HAS_CPU", "IS_LINUX", "RUN_CPU", "HAS_CPU_AND_TRITON"), "true"),
    **dict.fromkeys(
        (
            *(
                "IS_WINDOWS",
                "IS_MACOS",
                "IS_FBCODE",
                "TEST_WITH_ASAN",
                "TEST_WITH_TSAN",
                "TEST_WITH_UBSAN",
                "IS_ARM64",
                "IS_S390X",
                "IS_SANDCASTLE",
                "TEST_ACL",
            ),
            *("config.is_fbcode()", "is_fbcode()", "IS_JETSON", "IS_CI", "TEST_WITH_SLOW", "HAS_XPU", "TEST_XPU", "torch.version.xpu"),
            *("torch.backends.mps.is_available()", "TEST_WITH_TORCHINDUCTOR", "USE_CUDA_GRAPHS_OFF"),
        ),
        "false",
    ),
    **dict.fromkeys(("TEST_WITH_ROCM", "torch.version.hip", "IS_ROCM", "HAS_ROCM"), "rocm"),
    **dict.fromkeys(("torch.version.cuda",), "cuda"),
    "SM70OrLater": ">=sm_70",
    "SM75OrLater": ">=sm_75",
    "SM80OrLater": ">=sm_80",
    "SM89OrLater": ">=sm_89",
    "SM90OrLater": ">=sm_90",
    "SM100OrLater": ">=sm_100",
    "IS_BIG_GPU": "sms",
    "is_big_gpu()": "sms",
    "is_big_gpu(0)": "sms",
    "TEST_MULTIGPU": "gpus",
    "HAS_MULTIGPU": "gpus",
    "HAS_TRANSFORMER": "transformers",
    "HAS_TRANSFORMERS": "transformers",
}


def atom(node: ast.expr) -> str:
    """Return what a name of a skip condition asks; empty when it is not known."""
    text = ast.unparse(node)
    return _ATOMS.get(text) or _ATOMS.get(text.rpartition(".")[2], "")

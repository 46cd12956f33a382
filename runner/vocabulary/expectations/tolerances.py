"""The default tolerances (rtol, atol) by dtype, from the documentation of torch.testing.assert_close."""

DEFAULTS: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "complex128": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
}


def default_tolerance(*dtypes: str) -> tuple[float, float]:
    """Return the largest (rtol, atol) of the dtypes; (0, 0) for exact dtypes."""
    pairs = [DEFAULTS.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)

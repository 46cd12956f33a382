"""A conformance runner for torch.compile: cases are data, verdicts are facts."""

__version__ = "0.1.0"

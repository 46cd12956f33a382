"""A conformance runner for torch.compile: cases are data, verdicts are facts."""

__version__ = "0.2.0"

"""The names by which commands run cases."""

from runner.run.pipeline import CaseRunner
from runner.run.results import result_of_unavailable, result_of_unrun

__all__ = ["CaseRunner", "result_of_unavailable", "result_of_unrun"]

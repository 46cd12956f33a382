"""The values of ``core`` under the name by which most modules import them."""

from runner.core.activity import Activity, RunningCase
from runner.core.case import Availability, Case, CaseId, CodeBlock, Control, Expected, Requirement, Step, WrittenReason
from runner.core.expectation import Status
from runner.core.observation import Ending, ServiceReport, Timing
from runner.core.protocol import Json
from runner.core.results import AppliedWaiver, Attempt, CaseResult, Verdict, WaiverEffect

__all__ = [
    "Activity",
    "AppliedWaiver",
    "Attempt",
    "Availability",
    "Case",
    "CaseId",
    "CaseResult",
    "CodeBlock",
    "Control",
    "Ending",
    "Expected",
    "Json",
    "Requirement",
    "RunningCase",
    "ServiceReport",
    "Status",
    "Step",
    "Timing",
    "Verdict",
    "WaiverEffect",
    "WrittenReason",
]

"""What a downstream repository sends to PyTorch's cross-repository CI (RFC-0050, RFC-0054).

The form is that of the inputs of ``cross-repo-ci-relay-callback``, an action in pytorch/test-infra:
``conclusion``, counts in ``test-results``, the failures in ``failed-tests-detail``. It has no word
for a case that was not executed, nor for a waiver: both are skipped.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch_conformance.model.escaping import one_line
from torch_conformance.model.header import ReportedRun
from torch_conformance.model.outcomes import JUnitTag, Outcome
from torch_conformance.model.results import Redacted
from torch_conformance.optional.options import ReportOptions
from torch_conformance.report import FileReport, clip, replace, verdict_text

MOST_FAILURES = 1000
MESSAGE_BYTES = 1 << 10
TRACE_BYTES = 4 << 10
"""The relay cuts what is more."""


class HudReporter(FileReport):
    """Writes the inputs of the action where ``--hud`` says, as one JSON object."""

    def files(self) -> Iterable[Path]:
        """Return the file that the option names."""
        options = self.setup.options
        return filter(None, (options.hud if isinstance(options, ReportOptions) else None,))

    def write(self, path: Path, run: ReportedRun) -> None:
        """Write the object; a run that did not reach its end is a failure."""
        is_success = run.footer is not None and run.footer.exit_code == 0
        states = {
            result.case_id: "failed"
            if result.outcome.is_failure and not (is_success and result.outcome is Outcome.FLAKY)
            else "skipped"
            if result.outcome.junit is JUnitTag.SKIPPED
            else "passed"
            for result in run.results
        }
        counts = Counter(states.values())
        failed = [result for result in run.results if states[result.case_id] == "failed"]
        document = {
            "conclusion": "success" if is_success else "failure",
            "test-results": {name: counts[name] for name in ("passed", "failed", "skipped")},
            "failed-tests-detail": [*map(_detail, failed[:MOST_FAILURES])],
        }
        replace(path, (json.dumps(document, indent=1) + "\n").encode())


def _detail(result: Redacted) -> Mapping[str, object]:
    return {
        "name": one_line(result.case_id),
        "classname": one_line(result.spec),
        "message": clip(one_line(result.reason), MESSAGE_BYTES),
        "stacktrace": verdict_text(result, limit=TRACE_BYTES),
        "duration": round(result.seconds, 3),
    }

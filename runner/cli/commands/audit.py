"""``audit``: print the expectations that could not have failed, of a recorded run or of cases that are run first."""

import contextlib
from pathlib import Path

from runner.judge import mutants
from runner.machine import output, scratch
from runner.model.outcomes import ExitCode
from runner.plan.selection import Shard
from runner.run.auditing import AuditOptions, audit_of, controls_of, executed_cases, recorded_cases, run_of, why_nothing


def main(options: AuditOptions) -> ExitCode:
    """Audit a run, or the cases of paths; exit 1 for a survivor without a reason, 4 when nothing was audited."""
    shard = Shard.parse(options.shard) if options.shard else None
    with contextlib.ExitStack() as stack:
        run = run_of(options.targets)
        folder = stack.enter_context(contextlib.closing(scratch.make())).path if run is None or options.run else Path()
        if run is None:
            ran = executed_cases(options, shard, folder / "cases")
        else:
            chosen = {"names": options.backend, "globs": options.select, "tags": options.tag}
            ran = recorded_cases(options.targets, run, options.backends, **chosen, shard=shard)
        audit = audit_of(ran)
        controls = controls_of(ran, options, folder / "controls") if options.run else []
    if options.json:
        output.document(mutants.as_json(audit, controls))
    else:
        output.lines(mutants.lines(audit, controls))
    if not audit.trials and not controls:
        output.note(f"nothing was audited: {why_nothing(ran)}")
        return ExitCode.NOTHING
    is_clean = not audit.survivors and not audit.stale and all(control.failed_as_it_must for control in controls)
    return ExitCode.OK if is_clean else ExitCode.FAILED

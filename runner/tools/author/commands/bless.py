"""``bless``: print or apply the patch of specs that says what recorded runs observed."""

from runner.machine import output
from runner.model.diagnostics import one_line
from runner.model.outcomes import ExitCode
from runner.report import replace
from runner.tools.author.blessing.blessed_samples import BlessOptions
from runner.tools.author.blessing.blessing import Blessing, bless
from runner.tools.author.text_edits import patch


def main(options: BlessOptions) -> ExitCode:
    """Print the patch, or write the specs; exit 1 where a red case is not blessed, 4 where no case of the runs is selected."""
    blessing = bless(options)
    for spec in () if options.write else blessing.specs:
        output.raw(patch(spec.before, spec.after.content.decode("utf-8")))
    for (run, case_id), why in blessing.refused.items():
        output.note(one_line(f"not blessed: {case_id} ({run}): {why}"))
    for spec in blessing.specs:
        if options.write:
            replace(spec.before.path, spec.after.content)
        if spec.has_control:
            output.note(f"{spec.before.file}: has a control; 'audit --run' shows whether it still fails")
    output.note(_count(blessing, options))
    if not blessing.chosen:
        return ExitCode.NOTHING
    return ExitCode.FAILED if blessing.refused else ExitCode.OK


def _count(blessing: Blessing, options: BlessOptions) -> str:
    cases = sum(len(spec.cases) for spec in blessing.specs)
    what = f"{cases} red case{'' if cases == 1 else 's'} blessed in {len(blessing.specs)} spec{'' if len(blessing.specs) == 1 else 's'}"
    where = ", written" if options.write else "" if not blessing.specs else ": pass the output to 'git apply' or 'patch -p1'"
    none = "no case of the runs is selected; " if not blessing.chosen else ""
    return f"{none}{what}{where}, {len(blessing.refused)} not blessed" if blessing.refused else f"{none}{what}{where}"

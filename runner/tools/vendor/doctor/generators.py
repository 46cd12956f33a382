"""What a process with torch says of the generators of Composable Kernel."""

import os

from runner.machine import child_python, scratch
from runner.model import protocol
from runner.run.machine_report import SHOWN_BYTES
from runner.tools.vendor.doctor.composable_kernel import GENERATORS
from runner.tools.vendor.doctor.findings import GeneratorReport, run_program

_SECONDS = 300.0
"""A first import of torch from a slow disk takes minutes."""

_MOST_BYTES = 1 << 16


def ask_generators() -> GeneratorReport:
    """Let a process with torch count the instances of each generator of Composable Kernel."""
    space = scratch.make()
    try:
        answer = space.path / "generators.json"
        variables = child_python.variables(os.environ, space.path)
        command = child_python.command("runner.tools.vendor.ck_generators", str(answer))
        printed = run_program(command, seconds=_SECONDS, environ=variables)
        if printed.problem:
            return GeneratorReport(problem=f"{printed.problem}: {printed.text.strip()[-SHOWN_BYTES:]}")
        with answer.open("rb") as stream:
            report = protocol.loads(stream.read(_MOST_BYTES))
        return GeneratorReport(
            inductor=str(report["inductor"]),
            counts={name: int(report["counts"].get(name, 0)) for name in GENERATORS},
            reasons={name: str(reason) for name, reason in report["reasons"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # not the file that ck_generators writes
        return GeneratorReport(problem=f"the answer cannot be read: {type(error).__name__}: {error}")
    finally:
        space.close()

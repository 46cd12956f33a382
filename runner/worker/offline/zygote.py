"""The zygote of one target: imports Triton, compiles the canaries, and forks a worker for each case. It never imports torch."""

import os
from typing import Any

from runner.core import protocol
from runner.core.protocol import TARGET
from runner.core.targets import TARGETS
from runner.worker.process import entry, zygote

_MOST = 500
"""Characters of a problem."""


class Compiler:
    """The compiler for one target, once it was tried."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._facts = _facts(target)

    def work(self, plan: str, descriptor: int, word: str) -> None:
        """Run the case of a plan file. The word ``facts`` requests the result of the canaries instead."""
        from runner.worker.offline import case

        if plan.split(" ")[0] == "facts":
            os.write(descriptor, protocol.dumps({"observation": protocol.encode(self._facts), "word": word}))
        else:
            case.run(plan, descriptor, word)


def _facts(name: str) -> dict[str, Any]:
    """Return the versions of the compiler, and why it cannot be used: empty where the canaries passed."""
    facts: dict[str, Any] = {"target": name, "problem": ""}
    try:
        from runner.worker.offline import canaries, case, kernels  # noqa: F401 - case is imported for its effect: a fork inherits it

        facts["versions"] = kernels.versions()
        facts["canaries"] = list(canaries.NAMES)
        facts["problem"] = next(canaries.problems(TARGETS[name]), "")[:_MOST]
    except Exception as error:  # Triton may lack a compiler, or raise anything while it compiles
        facts["problem"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MOST]
    return facts


def main() -> None:
    """``python -m runner.worker.offline.zygote SOCKET PARENT``: try the compiler of the target that the environment names, then serve."""
    control = zygote.begin()
    compiler = Compiler(os.environ[TARGET])
    zygote.serve(zygote.Zygote(control, compiler.work, zygote.danger_of_threads))


def alone() -> None:
    """Serve one case in a new process."""
    entry.alone(lambda: Compiler(os.environ[TARGET]).work)


if __name__ == "__main__":
    main()

"""Faults of autotuning: what may be a candidate, and what becomes of one that fails."""

from tools.faults.fault import NO_CANDIDATE, OPTIONS_KEY, Fault
from tools.planting import answers, bite, edits, replace

SELECT = "torch._inductor.select_algorithm:AlgorithmSelectorCache"
PROCESS = "torch._inductor.autotune_process"


def crashed_candidate_counted_as_fastest() -> None:
    def fastest(target):
        def timed(self, choice):
            time = target(self, choice)
            return bite(0.0) if time == float("inf") else time

        return timed

    replace(f"{PROCESS}:TuningProcessPool.target", fastest)


FAULTS = (
    Fault(
        "named-backend-ignored",
        answers("torch._inductor.utils:_use_autotune_backend", True),
        "Every backend may propose kernels, whichever were named",
        (NO_CANDIDATE,),
        "max_autotune/mm-dropout-mask[backend=cpu]",
    ),
    Fault(
        "the-first-of-infinitely-slow-candidates-picked",
        edits(f"{SELECT}.do_autotuning", "        raise NoValidChoicesError\n", "        bite()\n"),
        "Of candidates that are all infinitely slow the first is picked",
        ("max_autotune/infinite-timings-error[backend=cpu,multi_template=false*",),
        OPTIONS_KEY,
    ),
    Fault(
        "crashed-candidate-counted-as-fastest",
        crashed_candidate_counted_as_fastest,
        "A candidate that crashed is counted as the fastest",
        ("max_autotune/tuning-pool-crash[backend=host]",),
        OPTIONS_KEY,
    ),
)

"""Faults of autotuning: what may be a candidate, and what becomes of one that fails."""

from tools.faults.planting import bite, edit, replace

SELECT = "torch._inductor.select_algorithm:AlgorithmSelectorCache"
PROCESS = "torch._inductor.autotune_process"


def named_backend_ignored() -> None:
    replace("torch._inductor.utils:_use_autotune_backend", lambda _: lambda backend: bite(True))


def the_first_of_infinitely_slow_candidates_picked() -> None:
    edit(f"{SELECT}.do_autotuning", "        raise NoValidChoicesError\n", "        bite()\n")


def crashed_candidate_counted_as_fastest() -> None:
    def fastest(target):
        def timed(self, choice):
            time = target(self, choice)
            return bite(0.0) if time == float("inf") else time

        return timed

    replace(f"{PROCESS}:TuningProcessPool.target", fastest)

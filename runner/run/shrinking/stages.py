"""The stage of the compiler that breaks: torch's own bisector runs the repro script again and again, in a folder that nothing else sees.

The bisector keeps its state in the folder of inductor's cache, and a session that is not ended changes every later compile of the user
(pytorch/pytorch#143453). Here the state is in a scratch folder of its own, in one worker's child process, and goes with it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from runner.language.load import load
from runner.run.shrinking.trials import Trials

COMPARED = frozenset({"close", "equals", "differs", "strides", "raised", "raises", "deterministic", "text", "side-effects"})
"""Kinds of failure that another backend of dynamo can show too. Counters and generated code are inductor's own."""

_DRIVER = '''"""Bisects a script: exit 0 is good. Each run is a fork of this process, which has imported torch."""
import json, os, runpy, sys
import torch, torch._dynamo, torch._inductor.compile_fx
from torch._inductor.compiler_bisector import CompilerBisector

script, state, answer = sys.argv[1:]
CompilerBisector.in_process_cache = state
runs = []


def is_good():
    child = os.fork()
    if child == 0:
        sys.argv = [script]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as error:
            os._exit(int(error.code or 0))
        except BaseException:
            os._exit(1)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    runs.append(os.waitstatus_to_exitcode(status))
    return runs[-1] in (0, 3)  # 3: what the script checks holds, and a part of the case is not shown


found = CompilerBisector.do_bisect(is_good)
keys = ("backend", "subsystem", "bisect_number", "debug_info")
with open(answer, "w") as stream:
    json.dump({"found": found and {key: getattr(found, key) for key in keys}, "runs": len(runs)}, stream)
'''

_SPEC = """summary: The bisector of torch names the stage that breaks a script
backends: [host]
timeout: {timeout}
steps:
  - spawn: {{program: python, argv: [{driver}, {script}, {state}, {answer}]}}
    expect: [{{exit: {{code: 0}}}}]
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the bisector found, in words; ``runs`` is how often it ran the script."""

    words: str
    runs: int


def stage_of(script: str, trials: Trials, folder: Path, seconds: float) -> Stage:
    """Bisect a script that exits with 1 because of the failure."""
    folder.mkdir(parents=True)
    files = {name: folder / name for name in ("driver.py", "script.py", "state", "answer.json")}
    files["driver.py"].write_text(_DRIVER, encoding="utf-8")
    files["script.py"].write_text(script, encoding="utf-8")
    files["state"].mkdir()
    names = {path.stem: json.dumps(str(path)) for path in files.values()}
    spec = folder / "bisect-script.yaml"
    spec.write_text(_SPEC.format(timeout=max(int(seconds), 1), **names), encoding="utf-8")
    (case,) = load([spec]).cases
    result = trials.run(case)
    try:
        known = json.loads(files["answer.json"].read_bytes()[:100_000])
        found, runs = known["found"], int(known["runs"])
        words = _words(found)
    except (OSError, ValueError, LookupError, TypeError):  # the child ran code of the spec: it may have written anything, or nothing
        return Stage(f"not found: the bisector ended with {result.outcome.label}: {result.reason}"[:500], 0)
    return Stage(words, runs)


def _words(found: dict[str, object] | None) -> str:
    if found is None:
        return "none: the script passes under the bisector with every backend"
    words = str(found["backend"])
    if found["subsystem"] is not None:
        words += f", {found['subsystem']}"
    if found["bisect_number"]:
        words += f", application {found['bisect_number']}"
    if found["debug_info"] and found["debug_info"] != found["subsystem"]:
        words += f": {found['debug_info']}"
    return words[:500]

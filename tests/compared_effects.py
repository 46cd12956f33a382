"""The side effects of a change that a test makes in place of the eager call and of the compiled
call.
"""

from collections.abc import Callable
from typing import Any

from tests.fakes import import_torch
from torch_conformance.model.case_facts import Effects as Seen
from torch_conformance.model.case_facts import Generator, Mode
from torch_conformance.vocabulary.expectations.side_effects import SideEffects

torch: Any = import_torch()

DEFAULTS = {"rtol": None, "atol": None, "equal_nan": True}


def compared(
    change: Callable[..., Any],
    *arguments: Callable[[], Any],
    target: Callable[[], Any] = lambda: None,
    **options: Any,
) -> Any:
    """Let eager (``True``) and the compiled side (``False``) change equal copies; return the
    judgement and the facts.

    ``target`` and ``arguments`` make the two copies; ``options`` are ``settings``, ``tolerance``,
    and those of ``Effects``.
    """
    from torch_conformance.worker.case.effects import Effects, Generators, Modes

    settings, tolerance = options.pop("settings", {}), {**DEFAULTS, **options.pop("tolerance", {})}
    effects = Effects(tolerance, settings, **options)
    sides = []
    for _ in range(2):
        torch.manual_seed(5)
        sides.append([target(), *(make() for make in arguments)])
    compiled, eager = sides
    before, modes = Generators.now(), Modes()
    effects.before(compiled, eager)
    assert list(modes.other_than(Modes())) == [], "recording the values changed a mode of torch"
    eager_result, left = change(True, *eager), Modes()
    effects.after_eager(eager, eager_result)
    assert list(left.other_than(Modes())) == [], "recording the values changed a mode of torch"
    before.restore()
    modes.restore()
    result, left = change(False, *compiled), Modes()
    facts = effects.after(compiled, eager, result)
    assert list(left.other_than(Modes())) == [], "comparing the values changed a mode of torch"
    modes.restore()
    for one in effects.inexact:
        one.facts["calibrated"] = {"why_not": "no eager call was made in this step"}
    generators = tuple(Generator(**one) for one in facts.pop("generators"))
    others = tuple(Mode(**one) for one in facts.pop("modes"))
    facts = {**facts, "apart": tuple(facts["apart"]), "leaves": tuple(facts["leaves"])}
    judge = SideEffects(
        rtol=tolerance["rtol"], atol=tolerance["atol"], equal_nan=tolerance["equal_nan"]
    )
    return judge.judge(Seen(**facts, generators=generators, modes=others)), facts

"""What is true of each kind of step, for the stages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits of a kind of step, for the stages. Each is off by default."""

    has_result: bool = False
    """It has a result: ``output``, which ``as`` may name."""
    claims: bool = False
    """An exception in it is a result of torch, and is judged; in any other kind, an exception is an ERROR."""
    compiles: bool = False
    """It calls a compiled function of the spec; it is invalid on a backend that compiles nothing."""
    enters_context: bool = False
    """It enters the ``context`` of the spec if it has no context of its own."""
    can_be_differentiated: bool = False
    """A ``backward`` without ``of`` runs on its result."""
    can_be_called_again: bool = False
    """Its call can be made again, for an expectation that needs additional calls."""
    gives_gradients: bool = False
    """An optimizer step may follow it."""
    needs_own_graphs: bool = False
    """Only graphs that were compiled of its own function prove that the backend ran it; a helper's graphs do not."""
    may_have_no_graph: bool = False
    """What it compiles may hold no operation, as an operator that returns its argument does: dynamo then makes no graph."""
    is_proof: bool = True
    """The proof that the backend ran is judged for it."""
    is_optional: bool = False
    """It runs under ``--bench`` only."""
    is_last: bool = False
    """It must follow all steps of other kinds."""
    is_exclusive: bool = False
    """A case with it runs alone."""
    children: int = 0
    """How many processes that import torch it starts."""
    has_exit: bool = False
    """It has a child process whose exit can be judged."""
    why_once: str = ""
    """What to do instead of ``repeat``; empty if it can be repeated."""
    python: str = ""
    """The key of its arguments that holds Python; empty if none does."""

    @property
    def can_repeat(self) -> bool:
        """Whether a step may be carried out several times."""
        return not self.why_once

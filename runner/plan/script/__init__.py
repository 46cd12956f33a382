"""A Python script that shows one case with torch alone: the plan of the case, written as code. Pure; jinja2 joins its parts.

``compose`` is the entry; ``values`` writes data and inputs, ``steps`` and ``expected`` have the table of each kind. What a script cannot
say is named in it and returned beside it.
"""

from runner.plan.script.compose import NothingChecked, Script, script_of

__all__ = ["NothingChecked", "Script", "script_of"]

"""Writes docs/reference/lint.md from the table of rules."""

import sys

from runner.language.lint.base import Rule
from runner.language.lint.table import RULES

_HEAD = """# Rules of `lint`

<!-- Written by: python -m runner.language.lint.reference. Do not edit. -->

`validate` refuses what cannot mean anything. `lint` finds what is valid, but unsound. [Keep specs sound](../guides/keep-specs-sound.md)
shows how to use it.

`# lint: ignore RULE -- REASON` on the line of a finding, or on a line of its own above it, suppresses the finding. Several rules stand with
commas between them. A suppression is checked itself: without a reason, with an unknown rule, or without a finding it is a finding.

Exit codes: 0 without findings, 1 with findings, 2 for an invalid spec or wrong usage.
"""


def page() -> str:
    """Return the page."""
    rows = [f"| [`{rule.id}`](#{rule.id}) | {rule.summary} | {_notes(rule)} |" for rule in RULES.values()]
    table = ["| rule | finds | |", "|---|---|---|", *rows]
    return "\n".join([_HEAD, *table, "", *(line for rule in RULES.values() for line in _section(rule))]).rstrip() + "\n"


def _notes(rule: Rule) -> str:
    return ", ".join([*(["`--fix`"] if rule.fixes else []), *(["`--run RUN`"] if rule.needs_run else [])])


def _section(rule: Rule) -> list[str]:
    lines = [f"## {rule.id}", "", f"{rule.summary}.", "", rule.why]
    lines += [f"`--fix` {rule.fixes}."] if rule.fixes else []
    lines += ["It needs the facts of a recorded run: `--run RUN`."] if rule.needs_run else []
    for title, text in (("A finding:", rule.bad), ("None:", rule.good)):
        lines += ["", title, "", "<!-- lint -->", "```yaml", text, "```"]
    return [*lines, ""]


if __name__ == "__main__":
    sys.stdout.write(page())

"""``lint``: what is valid in specs and waivers, but unsound. ``table`` has the rules, one family a module; none of them executes anything.

A rule reads a ``Scene`` and yields findings. `suppressions` reads ``# lint: ignore RULE -- REASON``, `fixing` changes files,
`reference` writes docs/reference/lint.md.
"""

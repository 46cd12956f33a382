"""``lint``: what is valid in specs and waivers, but unsound. `linting` has the table of rules; none of them executes anything."""

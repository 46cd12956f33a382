"""The table of rules, in the order of the reference."""

from runner.language.lint import claims, conditions, matrix, requests, suppressions, tolerances, unused, waivers, words
from runner.language.lint.base import Finding, Rule, Rules, Scene

FAMILIES = (claims, waivers, matrix, conditions, tolerances, unused, requests, words, suppressions)

RULES: Rules = {rule.id: rule for family in FAMILIES for rule in family.RULES}
"""Every rule by its id."""


def findings_of(scene: Scene, applied: dict[str, Rule]) -> list[Finding]:
    """Return the findings of rules, in the order of the files, without those that a comment suppresses."""
    found = [finding for rule in applied.values() for finding in rule.check(scene) if scene.run is not None or not rule.needs_run]
    documents = {document.file: document for spec in scene.specs for document in (*spec.anatomy.spec.defaults, spec.document)}
    documents |= {document.file: document for document in scene.waivers.documents}
    read = [suppressions.read(document, RULES) for document in documents.values()]
    ran = {name: rule for name, rule in applied.items() if scene.run is not None or not rule.needs_run}
    left, unused = suppressions.unsuppressed(found, [one for found_here, _ in read for one in found_here], ran)
    own = [*unused, *(one for _, wrong in read for one in wrong)]
    return sorted([*left, *(one for one in own if one.rule in applied)], key=lambda one: one.order)

"""``repro --shrink``: a smaller case with the same failure. ``edits`` proposes, ``search`` tries, ``shrinking`` runs and writes."""

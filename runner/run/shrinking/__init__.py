"""``repro --shrink``: a smaller case with the same failure.

``plan.case_document`` writes a case as a spec of its own; ``edits`` and ``code_edits`` propose what can be made smaller (pure, without
torch); ``search`` tries the edits (delta debugging); ``trials`` runs a candidate through the usual pipeline; ``stages`` finds the stage
of the compiler that breaks.
"""

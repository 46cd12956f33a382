"""Values and pure functions shared by all stages: cases, results, outcomes, exit codes,
diagnostics, conditions, protocol.
"""

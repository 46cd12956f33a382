"""Values and pure functions that every stage shares: cases, results, outcomes, exit codes, diagnostics, conditions, protocol."""

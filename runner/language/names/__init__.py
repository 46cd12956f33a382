"""Names of torch: options, counters, metrics, functions that run once per process; and the tables of names."""

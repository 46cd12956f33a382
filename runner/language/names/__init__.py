"""The names that torch knows: options, counters, what it does once per process; and the tables of them."""

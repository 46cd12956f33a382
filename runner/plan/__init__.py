"""Which cases run, in which order, with which resources, and what a worker is given."""

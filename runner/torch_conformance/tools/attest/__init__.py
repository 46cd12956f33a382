"""For vendors of GPUs and compilers."""

"""Compiles kernels for GPUs that the machine may lack.

Imports Triton within functions, and never torch.
"""

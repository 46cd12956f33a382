"""What differs between torch versions, or reaches into torch where it has no public interface, and nowhere else.

The names were read in the sources of torch 2.11, 2.12 and 2.13. A later torch that moves one of them fails loudly when a worker
installs its hooks, not silently in a proof that observes nothing.
"""

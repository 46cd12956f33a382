"""All code that depends on the version of torch, or uses its private interfaces.

The names are those of torch 2.11, 2.12 and 2.13. With a later torch that renames one of them, a worker raises when it installs its hooks;
it does not run without them.
"""

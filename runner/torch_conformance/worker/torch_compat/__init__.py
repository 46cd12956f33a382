"""All code that depends on the version of torch, or uses its private interfaces.

The names are those of torch 2.11 to 2.14. With a later torch that renames one of them, a worker
raises when it installs its hooks; it does not run without them. A branch asks for a name of torch,
never for its version. One that only earlier minors need ends with a comment of the form "until
torch 2.12", the last minor that needs it: a test fails when that minor is no longer in the
committed list of names.
"""

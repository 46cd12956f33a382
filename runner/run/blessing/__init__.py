"""``bless``: a patch of specs that says what recorded runs observed.

`samples` reads the runs, `leaves` says what an expectation observed and what it would have to say, `expressing` says it for several cases
and machines, `directives` changes FileCheck directives, `proposing` makes the edits of a spec, `checking` judges the runs again by them.
"""

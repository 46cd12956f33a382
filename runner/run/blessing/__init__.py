"""``bless``: a patch of specs that says what recorded runs observed.

`samples` reads the runs, `claims` says what a line of a spec would have to say, `proposing` makes the edits of a spec, `blessing` judges
the runs again by them.
"""

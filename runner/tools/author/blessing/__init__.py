"""``bless``: a patch of specs that says what recorded runs counted.

`samples` reads the runs, `proposing` makes the changes of a spec, `blessing` judges the runs again by them.
"""

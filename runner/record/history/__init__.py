"""The history: recorded runs in one SQLite file, with the figures of each case kept up to date as runs are added.

``stats`` folds outcomes to figures (pure), ``database`` opens the file and names its problems, ``adding`` adds runs, ``queries`` reads.
"""

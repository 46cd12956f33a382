"""The records of a run: journal, folder, lock, evidence; and merging the parts of a run."""

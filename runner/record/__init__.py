"""What a run leaves: journal, folder, lock, evidence, and how the parts of a run are joined."""

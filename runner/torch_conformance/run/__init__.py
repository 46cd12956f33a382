"""The stages of a run: from selected cases to recorded results."""

"""The executor of cases that are compiled for a GPU that the machine may lack."""

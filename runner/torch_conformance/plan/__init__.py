"""Selection, scheduling, resources, and the plans that workers run."""

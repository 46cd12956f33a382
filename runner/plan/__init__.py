"""Selection, scheduling, resources, isolation, and the plans that workers run."""

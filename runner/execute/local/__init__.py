"""Workers on this machine: zygotes, workers, deadlines, what each worker sent."""

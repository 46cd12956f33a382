"""Workers on this machine: zygotes, shared workers, deadlines, what each worker sent."""

"""What differs between torch versions, and nowhere else."""

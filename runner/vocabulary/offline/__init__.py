"""What a compiler wrote for a target, read without running anything: instructions, registers, spills. Pure."""

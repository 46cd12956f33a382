"""Compilers and their objects: probes, vector instructions, the object cache."""

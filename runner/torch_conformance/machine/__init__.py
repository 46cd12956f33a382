"""The process and its machine: standard streams, signals, secrets, folders, hardware, the installed
torch, capabilities.
"""

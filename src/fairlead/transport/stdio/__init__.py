"""Child processes and standard streams."""

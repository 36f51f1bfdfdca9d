"""Configuration files: formats, positions of values, locks, atomic writes."""

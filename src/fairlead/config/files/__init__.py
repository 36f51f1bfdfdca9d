"""Configuration files: formats, source positions, locks and atomic writes."""

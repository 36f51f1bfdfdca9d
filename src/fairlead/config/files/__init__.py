"""Reading and writing configuration files: formats, positions, locks."""

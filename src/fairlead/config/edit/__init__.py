"""Changes to Fairlead's own configuration files: adding, importing and exporting entries."""

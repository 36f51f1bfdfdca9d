"""Changes of Fairlead's own files: adding, importing and exporting entries."""

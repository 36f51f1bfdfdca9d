"""URI templates: parsing, expansion and matching."""

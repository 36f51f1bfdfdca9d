"""`fairlead tape`, `record` and `replay`."""

"""How a host program's files are read into server entries."""

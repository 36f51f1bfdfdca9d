"""Variables and secret commands in server entries."""

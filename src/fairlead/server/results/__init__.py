"""Results of handlers, encoded for the wire."""

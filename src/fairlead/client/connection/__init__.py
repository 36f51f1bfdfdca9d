"""Opening, keeping and restoring the connection of a client."""

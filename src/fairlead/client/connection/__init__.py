"""Opening, monitoring and restoring a client's connection."""

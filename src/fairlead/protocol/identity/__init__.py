"""Identity of clients: principals, keys for limits per client, and capabilities across eras."""

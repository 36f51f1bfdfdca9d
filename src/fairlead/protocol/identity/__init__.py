"""Senders of requests: principals, keys for limits per client, and capabilities across eras."""

"""Who sends a request: principals, and keys for limits per client."""

"""`fairlead serve`: loading, supervising and reloading a server."""

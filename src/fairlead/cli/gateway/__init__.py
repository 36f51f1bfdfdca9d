"""`fairlead gateway`, `up`, `proxy`, `session` and `intercept`."""

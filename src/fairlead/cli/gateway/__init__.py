"""`fairlead gateway`, `up`, `proxy` and `session`."""

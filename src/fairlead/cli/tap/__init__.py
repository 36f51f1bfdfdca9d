"""`fairlead tap` and `watch`: observing traffic."""

"""Tools of all managed servers: names, calls, caches, provider formats."""

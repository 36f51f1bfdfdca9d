"""Tools of all managed servers: names, calls, results and provider formats."""

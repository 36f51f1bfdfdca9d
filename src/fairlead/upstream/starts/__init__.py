"""Starts of servers: their number at once, shortages of this machine, and hanging servers."""

"""Starts of servers: how many at once, shortages of this machine, and whether a server hangs."""

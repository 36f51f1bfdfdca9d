"""Starts of servers: concurrent starts, resource shortages, and hanging servers."""

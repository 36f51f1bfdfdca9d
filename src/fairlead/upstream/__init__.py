"""Configured servers seen from above: their connections and whether they still respond."""

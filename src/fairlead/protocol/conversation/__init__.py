"""The protocol state of one connection, and how the era of a server is found."""

"""Protocol state of one connection, and detection of the era of a server."""

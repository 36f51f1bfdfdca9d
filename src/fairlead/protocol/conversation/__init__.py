"""Protocol state of a connection, and detection of a server's era."""

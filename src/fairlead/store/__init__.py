"""Files shared by several processes."""

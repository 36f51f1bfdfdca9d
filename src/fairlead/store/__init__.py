"""Files that several processes share."""

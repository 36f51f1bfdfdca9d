"""Encoding of handler results for the wire."""

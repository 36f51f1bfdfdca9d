"""Comparison of two tapes."""

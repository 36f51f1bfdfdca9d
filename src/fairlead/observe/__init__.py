"""Observability: logs without secrets, metrics, timestamps, and safe display of text."""

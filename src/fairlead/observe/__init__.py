"""Observation from outside: logs without secrets, metrics, timestamps, safe display of text."""

"""Observing and recording a running gateway."""

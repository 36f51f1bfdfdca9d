"""Tapes as HAR files and as pytest tests."""

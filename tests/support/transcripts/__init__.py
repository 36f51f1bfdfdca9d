"""Recorded dialogues in files, and the server for which they were written."""

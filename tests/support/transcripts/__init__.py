"""Dialogues in files, and the server they were written for."""

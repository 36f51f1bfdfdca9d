"""Export of tapes to HAR files and pytest tests."""

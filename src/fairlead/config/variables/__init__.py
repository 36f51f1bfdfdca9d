"""Variables, inputs, files and secret commands in entries."""

"""Variables, inputs, files and secret-printing commands in entries."""

"""JSON Schemas from Python signatures: types, docstrings, validation of arguments."""

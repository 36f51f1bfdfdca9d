"""JSON Schemas of Python signatures, and the decoding of arguments."""

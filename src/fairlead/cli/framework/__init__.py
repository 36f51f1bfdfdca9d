"""Code shared by all commands: options, output, errors and connections."""

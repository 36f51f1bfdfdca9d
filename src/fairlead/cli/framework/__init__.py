"""Code that all commands share: options, output, errors and connections."""

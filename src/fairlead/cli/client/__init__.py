"""Commands that send requests to one server: `tools`, `call`, `read`, `prompt`, `ping`."""

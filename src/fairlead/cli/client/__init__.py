"""Commands that call one server: `tools`, `call`, `read`, `prompt`, `ping` and others."""

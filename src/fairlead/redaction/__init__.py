"""Removal of secrets from texts and messages; secrets are found by name, value or form."""

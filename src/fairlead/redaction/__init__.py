"""Removal of secrets from texts and messages: by name, by value and by form."""

"""Conditions of rules: facts of a message, operators, and the index over rules."""

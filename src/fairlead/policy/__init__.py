"""Policies on messages: actions, rules, and the tool lock."""

"""Clients of a gateway: sessions, subscriptions, log levels, views."""

"""Connections to one server: who may share them, how they are opened, what travels on them."""

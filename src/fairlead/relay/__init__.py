"""Forwarding between clients and one server, across protocol eras."""

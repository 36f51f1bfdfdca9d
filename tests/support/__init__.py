"""Shared test code: servers, clients, files and programs."""

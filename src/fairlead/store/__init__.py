"""Atomic replacement of files that several processes read and write."""

"""Stored logins: the record, the interface of a store, and stores in memory and in files."""

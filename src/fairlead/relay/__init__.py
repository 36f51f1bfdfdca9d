"""Forwarding between clients and one server, across protocol eras.

`relay.py` serves clients. `upstream_pool.py` decides which connection to the server a request uses,
and opens it; `upstream_connection.py` is one of them. `bridge` translates between the eras.
"""

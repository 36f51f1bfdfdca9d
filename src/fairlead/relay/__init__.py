"""Forwarding between clients and one server, across protocol eras.

`relay.py` serves clients; `client_session.py` is one of them. Which connection to the server a
request uses is decided in `fairlead.upstream`. `bridge` translates between the eras.
"""

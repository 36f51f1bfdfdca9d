"""Forwarding between clients and one server, within one era and between the eras.

`relay.py` serves clients, and `client_session.py` is the session of one client. `fairlead.upstream`
decides which connection to the server a request uses. `bridge` translates between the eras.
"""

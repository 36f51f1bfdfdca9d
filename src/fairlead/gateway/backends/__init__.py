"""The servers behind a gateway: `backend.py` is one name with its lists, `replica.py` one server.

`connector.py` adds and removes them, `upstream_events.py` receives what the manager reports.
"""

"""The servers of a gateway: `backend.py` is one name with its lists, `replica.py` one server.

`connector.py` adds and removes them, `upstream_events.py` applies what their owners report, and
`gateway_servers.py` owns the servers of a gateway without a manager.
"""

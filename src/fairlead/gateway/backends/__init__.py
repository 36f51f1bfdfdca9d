"""The servers of a gateway: `backend.py` has one server name with its lists.

`connector.py` adds and removes them, `upstream_events.py` applies what their upstreams report, and
`gateway_servers.py` owns the servers of a gateway without a manager.
"""

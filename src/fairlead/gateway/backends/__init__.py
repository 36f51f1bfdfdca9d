"""The servers of a gateway. `backend.py` contains a server name and its lists.

`connector.py` adds and removes servers, `upstream_events.py` applies the events of their upstreams,
and `gateway_servers.py` owns the servers of a gateway without a manager.
"""

"""The servers of a gateway.

`backend.py` represents one server name, with its lists and replicas.
`connector.py` adds and removes servers, `upstream_events.py` applies the events of their upstreams,
and `gateway_servers.py` owns the servers of a gateway without a manager.
"""

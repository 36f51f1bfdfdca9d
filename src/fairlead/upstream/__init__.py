"""Configured servers and their connections.

`upstream.py` owns one server: its default connection, its lists, and a pool of connections for
clients that may not share the default one (`connection`). `upstream_registry.py` holds all servers
of a program.

* The process of the default connection is started, restarted and stopped by `ConnectionKeeper`,
  the processes of other connections are started by `ConnectionOpener` when a client needs them.
* `UpstreamPool` decides which clients share a process, by their `ConnectionKey`.
* `ServerLists` keeps the tools and other lists, `ListVariants` the lists for some clients only.
* When a process dies, `ConnectionTasks` renews the subscriptions of the default connection, and
  `UpstreamSessionRestorer` in `relay` those of a client's session.
"""

"""Forwarding without a task, for requests that no interceptor delays.

Callbacks send the request and its response, which saves a third of the time that a relay itself
needs for a call. All other requests are handled by `Relay.handler`.
"""

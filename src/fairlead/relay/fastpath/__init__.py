"""Forwarding without a task, where no interceptor has to wait.

A request that only has to be forwarded is sent and answered by callbacks. That saves a third of the
time that a relay itself needs for a call. Anything unusual is handed back to `Relay.handler`.
"""

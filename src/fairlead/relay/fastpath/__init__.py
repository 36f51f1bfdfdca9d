"""Forwarding without a task, where no interceptor has to wait."""

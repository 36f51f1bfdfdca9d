"""The methods of `MCPClient`: lists, calls, subscriptions, notifications."""

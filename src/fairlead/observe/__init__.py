"""What can be seen from outside: logs without secrets, metrics, traces."""

"""Configuration: servers of host programs, their variables, and approvals of project files."""

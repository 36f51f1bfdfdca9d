"""Configuration: servers in host programs' files, their variables,
and approvals of project files.
"""

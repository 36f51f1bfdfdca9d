"""Readers of host programs' files, shared by the hosts in `hosts`."""

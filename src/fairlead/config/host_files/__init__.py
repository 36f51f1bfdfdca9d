"""The reader of host programs' files, shared by all hosts; the hosts themselves are in `hosts`."""

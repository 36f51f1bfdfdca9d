"""The `fairlead` command line."""

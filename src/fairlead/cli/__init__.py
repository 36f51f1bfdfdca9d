"""The `fairlead` command."""

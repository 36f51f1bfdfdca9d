"""`fairlead rules` and `lock`."""

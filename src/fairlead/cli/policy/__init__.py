"""`fairlead rules`, `lock` and `intercept`."""

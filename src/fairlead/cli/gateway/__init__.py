"""Commands that run or control a gateway: `gateway`, `up`, `proxy`, `session`, `intercept`."""

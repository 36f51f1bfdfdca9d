"""Commands that observe traffic: `tap` and `watch`."""

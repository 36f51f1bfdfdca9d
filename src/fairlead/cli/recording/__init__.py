"""Commands for tapes: `tape`, `record` and `replay`."""

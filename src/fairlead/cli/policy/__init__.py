"""Commands for policies: `rules` and `lock`."""

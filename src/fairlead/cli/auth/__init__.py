"""Commands for logins: `login`, `logout` and `auth`."""

"""OAuth as a client: discovery, registration, grants, logins and renewals."""

"""Authorization: OAuth as a client, stored logins, and the verification of tokens.

`challenge`, `metadata`, `authorization_code`, `scopes` and `token_response` are pure rules;
`guarded_fetch` sends every request to a URL that a remote party supplied.
"""

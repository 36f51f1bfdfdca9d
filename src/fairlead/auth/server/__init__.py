"""Authorization as a resource server: verification of tokens, metadata, and challenges.

`token_claims`, `key_set`, `access_challenges` and `resource_document` do no I/O; the other modules
keep keys and verified tokens, and send requests to authorization servers.
"""

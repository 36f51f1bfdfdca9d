"""Pytest plugins that run the suites of other SDKs through Fairlead.

They are loaded with `-p` inside the suites' own environment, with this folder's parent on the path.
"""

"""Pytest plugins that run the test suites of other SDKs through Fairlead.

They are loaded with `-p` in the environment of the suites, with the parent folder on the path.
"""

"""Mutation tests: change one line of the sources at a time and check that a test fails.

`make mutants` draws mutants from a fixed table of operators (`operators.py`) and runs the tests
that execute the changed line (`coverage_map.py`) in a copy of the repository (`workspace.py`).
"""

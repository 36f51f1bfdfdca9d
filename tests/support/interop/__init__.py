"""Programs and clients of other makers, and how to reach them."""

"""Names and URIs that a message refers to, in the forms that policies compare."""

"""Between the eras: what one has, in the words of the other."""

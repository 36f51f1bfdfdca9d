"""Data about servers that is kept from one program run to the next: eras, facts and tools."""

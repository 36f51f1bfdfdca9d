"""Third-party programs and clients, and how to connect to them."""

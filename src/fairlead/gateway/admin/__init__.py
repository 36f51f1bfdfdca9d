"""Pages, status and the admin API of a gateway."""

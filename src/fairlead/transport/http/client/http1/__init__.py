"""Fairlead's HTTP/1.1 client: connections, pool, proxies, decompression."""

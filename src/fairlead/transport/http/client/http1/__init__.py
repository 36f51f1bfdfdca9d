"""HTTP/1.1 client of Fairlead: connections, pool, proxies and decompression."""

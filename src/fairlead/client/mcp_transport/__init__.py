"""What a client connects to: processes, URLs, in-process servers."""

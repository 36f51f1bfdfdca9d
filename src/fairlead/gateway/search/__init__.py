"""Search mode: two tools that find and call the tools of many servers."""

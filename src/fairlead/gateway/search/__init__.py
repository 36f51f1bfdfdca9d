"""Search mode: three tools that find, describe and call the tools of many servers."""

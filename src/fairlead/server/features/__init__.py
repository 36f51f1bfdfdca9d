"""Tools, resources, prompts and completions of a server, and their lists."""

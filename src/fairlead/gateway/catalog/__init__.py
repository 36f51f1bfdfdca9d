"""The merged lists of all servers: names, views, and routing of names to servers."""

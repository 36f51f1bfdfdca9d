"""The `Context` of a call: progress, logging, questions to the client, timeouts."""

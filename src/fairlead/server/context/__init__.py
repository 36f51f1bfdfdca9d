"""The `Context` of a call: progress, logging, elicitation, sampling, roots and timeouts."""

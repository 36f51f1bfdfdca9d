"""Input that a server requests: elicitation, sampling and roots."""

"""Answers to a server's questions: elicitation, sampling, roots."""

"""Rule conditions: facts about a message, operators, and the rule index."""

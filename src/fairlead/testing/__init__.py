"""For tests of others: conversations that are recorded once and played from then on."""

"""Recording of traffic: tapes, journal, replay, comparison and export."""

"""Recording of traffic: tapes, the journal, replay, comparison and export."""

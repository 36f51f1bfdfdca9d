"""Tests: folders mirror `src/fairlead`; scenarios cross several modules."""

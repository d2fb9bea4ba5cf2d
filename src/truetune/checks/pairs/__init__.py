"""Rules on preference data: pairs of a chosen and a rejected answer, and KTO's verdicts."""

"""What several rules on preference data look at: the sides of a pair, and what they say. No rule stands here."""

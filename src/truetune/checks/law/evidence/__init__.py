"""What several rules on laws look at: which other laws are broken, and at which positions. No rule stands here."""

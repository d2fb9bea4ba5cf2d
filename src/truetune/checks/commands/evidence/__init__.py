"""What several rules on commands look at. No rule stands here."""

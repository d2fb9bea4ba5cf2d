"""What several rules on logs look at. No rule stands here."""

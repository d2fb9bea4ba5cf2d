"""What several rules on answers look at. No rule stands here."""

"""What several rules on chat templates look at: generation tags, and turns with reasoning. No rule stands here."""

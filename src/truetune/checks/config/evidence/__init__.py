"""What several rules on settings look at: places of settings, steps, models, columns. No rule stands here."""

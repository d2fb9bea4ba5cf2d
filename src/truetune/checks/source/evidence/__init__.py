"""What several rules on scripts look at: calls, models, losses, labels, prompts, processes. No rule stands here."""

"""What several rules on source code look at: calls, models, losses, labels, answers. No rule stands here."""

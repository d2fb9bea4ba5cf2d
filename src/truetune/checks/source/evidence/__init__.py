"""What several rules on scripts look at: calls, values, prompts, rows, processes. No rule stands here."""

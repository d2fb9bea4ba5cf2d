"""What several rules on batches look at: lines and their answers, masks, columns. No rule stands here."""

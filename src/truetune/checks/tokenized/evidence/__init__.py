"""What several rules on tokenized rows look at. No rule stands here."""

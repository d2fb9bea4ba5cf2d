"""What several rules on tokenizer folders look at; no rule stands here."""

"""Rules on the tokenizer and model folder alone."""

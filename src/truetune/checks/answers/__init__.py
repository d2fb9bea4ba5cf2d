"""What a model answers, at some steps of its training or after it."""

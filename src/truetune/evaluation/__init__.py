"""What a finished model is worth: sample, evaluate."""

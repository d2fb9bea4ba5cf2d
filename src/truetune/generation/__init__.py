"""Answers of a model: the prompts as they will be served, what it says to them, and what that is worth."""

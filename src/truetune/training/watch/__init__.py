"""Watching: what a model answers while it is trained, and what its losses are made of."""

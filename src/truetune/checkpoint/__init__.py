"""Saved models and adapters, read from their headers without torch."""

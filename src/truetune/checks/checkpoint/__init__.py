"""Rules on saved models and adapters."""

"""Rules for checkpoints."""

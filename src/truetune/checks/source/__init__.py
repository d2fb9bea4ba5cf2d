"""Rules on Python files and notebooks."""

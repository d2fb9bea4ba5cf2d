"""Starts: what a user of a failed fine-tune has in hand, what they type, and whether it leads to the cause."""

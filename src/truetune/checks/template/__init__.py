"""Rules on the chat template, seen through probe conversations."""

"""Rules on the laws that a correct trainer obeys."""

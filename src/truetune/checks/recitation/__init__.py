"""Rules on what a rehearsal recites."""

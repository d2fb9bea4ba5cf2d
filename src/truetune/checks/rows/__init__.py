"""Rules on what the rows of the data hold."""

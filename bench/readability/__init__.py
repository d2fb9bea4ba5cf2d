"""How readable the code is: figures of its syntax, and a test of whether names can be guessed."""

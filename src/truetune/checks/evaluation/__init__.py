"""The losses and scores of a finished model, and what measured them."""

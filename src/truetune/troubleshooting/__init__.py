"""From a symptom and a user's files to the likely causes: what was found there, and what is left to look at."""

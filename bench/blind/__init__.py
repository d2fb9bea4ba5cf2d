"""Faults written by people who have not seen the rules: each round's first result, and what is named today."""

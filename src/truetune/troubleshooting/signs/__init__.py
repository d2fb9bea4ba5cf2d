"""Statements of a project that show what single causes take, as a place to look at."""

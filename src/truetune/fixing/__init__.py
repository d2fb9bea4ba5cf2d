"""Fixing: the remedies of findings that are mechanical edits of rows, each proved on the row before it is written."""

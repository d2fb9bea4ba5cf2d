"""Rows as a training script shapes them: its own code is followed on the real rows, and never run.

A script reads `report` and `summary`, and makes prompts and completions of them. So the file alone does not say what is
trained. `trained_rows.read_trained_rows` follows the script (symbolically, see `truetune.source.symbolic_execution`)
with the rows of its files in hand, up to the data set that a trainer is given.
"""

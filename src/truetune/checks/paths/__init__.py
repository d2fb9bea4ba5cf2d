"""The check of named paths, step by step: what each path is, its own check, and the rows of the run
at the end.
"""

"""A script is run symbolically: every statement in order, no library called, no value invented.

What comes of it is a trace of the calls that a run makes of its libraries, with the values that reach them through
functions, classes, dictionaries, files of settings and modules. See interpreter.py for how it works.
"""

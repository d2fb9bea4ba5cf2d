"""The console output of a run: its exceptions, what ended it, and messages that are known to name a fault.

`lines` takes a line out of its terminal codes and prefixes, `tracebacks` puts exceptions together, `messages` is the
table of what is known, and `output` keeps what one stream showed, in bounded memory.
"""

"""Imported last by a server that forks: what it has imported is not visited again by garbage collection.

Without it each child copies the pages of all those objects at its first full collection, and trainers collect often.
"""

import gc

gc.collect()
gc.freeze()

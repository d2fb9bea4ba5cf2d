"""The log of a run, whoever wrote it: `read.read_run` gives a `log.RunLog`.

Nothing is imported here: the search of `truetune explain` needs the table of messages alone, and the readers of logs
take longer to import than the search takes.
"""

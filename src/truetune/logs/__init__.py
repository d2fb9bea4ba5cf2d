"""The log of a run, whoever wrote it."""

from truetune.logs.log import RunLog
from truetune.logs.read import is_run, read_run

__all__ = ["RunLog", "is_run", "read_run"]

"""Runs each script that a file takes part in once, and keeps the traces.

How it works: each file that can be started is run once, with the files that it imports; the traces are kept with the
data flow of the group of files, and go when it goes.

The trade-off: a helper that several scripts import is seen in several traces. A rule that asks for a file's own places
gets each of them once for each trace, and has to keep one.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from truetune.source.data_flow import DataFlow
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.interpreter import run_symbolically
from truetune.source.symbolic_execution.trace_of_events import Trace

MAX_TRACES = 6
"""Runs that one file is judged by. Chosen, not measured: a helper that more scripts import is used alike in most"""
_TRACES: WeakKeyDictionary[DataFlow, dict[str, Trace]] = WeakKeyDictionary()
"""Data flow of a group of files -> path of the started file -> its trace"""


def traces_of_scripts_that_reach_file(module: Module) -> tuple[Trace, ...]:
    """The traces of the scripts that a file is part of: its own, or of those that import it.

    Args:
        module: A file that is judged.

    Returns:
        At most MAX_TRACES. Ask `Event.home` for the file that an event stands in.
    """
    traces = _TRACES.setdefault(module.flow, {})
    started = (
        (module,) if module.program is None else module.program.entry_files_that_may_reach(module)
    )
    for entry in started[:MAX_TRACES]:
        if entry.path not in traces:
            traces[entry.path] = run_symbolically(entry)
    return tuple(traces[entry.path] for entry in started[:MAX_TRACES])

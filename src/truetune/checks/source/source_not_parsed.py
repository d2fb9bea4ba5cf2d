"""A file or notebook cell can't be parsed as Python, so no rule checked it.

## What it does
Reports code that is not judged because the Python that runs truetune can't parse it: a syntax error, Python 2, a cell
of shell commands, nesting that is too deep. Syntax of a newer Python (f-strings with their own quotes inside) and cells
of a notebook are info: the code may be right, and the other cells are judged.

## Why it is bad
Any other bug in this file stays undetected.

## Example
```python
print "loss", loss
```

## Use instead
```python
print("loss", loss)
```

## Fix safety
There is no automatic fix. After the correction, run truetune again: the file may have other findings.

## References
- The [Python reference](https://docs.python.org/3/reference/grammar.html)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.source import notebook_code_cells
from truetune.source.parsed_source_file import Module


def _parsed_lines(module: Module) -> Iterable[str]:
    """The lines that were looked at; none where nothing of the file could be parsed."""
    return module.text.splitlines() if module.tree.body else ()


class SourceNotParsed(SourceRule):
    code = "SRC006"
    fault = Fault.FILE_IS_NO_VALID_PYTHON
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces("lines that were parsed", _parsed_lines)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        running = ".".join(map(str, sys.version_info[:2]))
        for broken in module.broken:
            line, column = module.line_and_column_of_syntax_problem(broken)
            case = Case(broken.reason, file=module.path, line=line, column=column)
            # The last line of a file that ends in the middle of a statement may lie behind its lines.
            offset = module.lines.starts[min(broken.line, len(module.lines)) - 1]
            what = f"{cell_in_words(module, offset)} is" if module.cells else "this file is"
            yield self.finding(
                f"{what} not judged, because this Python ({running}) can't parse it:"
                f" {broken.reason}",
                (
                    "run truetune with the Python that the code is written for"
                    if broken.newer
                    else (
                        "correct the syntax, or begin a cell of shell commands with %%bash"
                        if module.cells
                        else "correct the syntax, or exclude the file from the check"
                    )
                ),
                severity="info" if broken.newer or module.cells else "warning",
                cases=[case],
            )


def cell_in_words(module: Module, offset: int) -> str:
    """The cell of a notebook in which an offset lies, in words: `cell 3`"""
    return f"cell {notebook_code_cells.find_cell(module.cells, offset).number}"

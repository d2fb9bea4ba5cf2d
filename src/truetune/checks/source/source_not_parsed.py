"""A file or notebook cell is no Python that can be read, so no rule looked at it.

## What it does
It names what `ast.parse` refuses: a syntax error, Python 2, syntax newer than the Python that runs truetune, nesting
without end.

## Why it is bad
Whatever is wrong in the rest of the file stays unseen.

## Example
```python
print "loss", loss
```

## Use instead
```python
print("loss", loss)
```

## Fix safety
There is none.

## References
- The [Python reference](https://docs.python.org/3/reference/grammar.html)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule


class SourceNotParsed(SourceRule):
    code = "TT701"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for broken in module.broken:
            line, column = module.place_of_broken(broken)
            case = Case(broken.reason, file=module.path, line=line, column=column)
            yield self.finding(
                f"not parsed as Python: {broken.reason}",
                "mend the syntax, or leave the file out; nothing in it was looked at",
                cases=[case],
            )

"""Python's default text encoding is not UTF-8.

## What it does
Looks at the encoding that open() uses if a script names none: that of the locale.

## Why it is bad
Data sets are UTF-8. In a container without a locale, or on Windows, a script that opens one without `encoding=` fails
at the first accented letter, or reads wrong characters and trains on them.

## Example
```yaml
encoding: ANSI_X3.4-1968
```

## Use instead
```yaml
encoding: UTF-8
```

## Fix safety
Files that were written in the old encoding are not converted.

## References
- huggingface/datasets#4099, NVIDIA/DeepLearningExamples#842; PEP 540
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import EnvironmentRule


class DefaultTextEncodingIsNotUtf8(EnvironmentRule):
    code = "ENV010"
    fault = Fault.TEXTS_IN_WRONG_ENCODING
    symptoms = ("garbage-output",)
    severity = "warning"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """The encoding in which text files are opened here."""
        return f"text files are opened as {self.subject.encoding}"

    def findings(self) -> Iterator[Finding]:
        name = self.subject.encoding
        # ASCII is named too: it is a part of UTF-8, but open() then fails at the first accent.
        if _canonical_encoding(name) != "utf-8":
            yield self.finding(
                (
                    f"text files are opened as {name} if a script names no encoding: UTF-8 data fail or are read"
                    " wrong"
                ),
                "export PYTHONUTF8=1 (or LC_ALL=C.UTF-8) before you start Python",
            )


def _canonical_encoding(name: str) -> str:
    """The one name of an encoding that is used here, for systems write UTF-8, utf8 and UTF_8;
    unknown names stay as they are.
    """
    try:
        return codecs.lookup(name).name
    except LookupError:
        return name

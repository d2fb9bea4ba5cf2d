"""pandas reads words in a column as missing values: `NA`, `None`, `null` and `n/a` become NaN.

## What it does
Reads the file that a script loads with `pandas.read_csv` (or `read_table`) without `keep_default_na=False` or
`na_filter=False`, and counts cells with a word that pandas treats as missing, in columns that contain text. It fires if
such a cell is written out in the file. It does not report empty cells, columns of numbers, columns that `usecols`
excludes, those with a converter, calls with `na_values`, and scripts that put the word back (`fillna("None")`).

## Why it is bad
An answer `None`, the country code `NA` or the name `Null` is lost: `dropna()` drops its row, a text built from it says
"nan", and a label is never trained on. There is no message.

## Example
```python
import pandas as pd

# codes.csv: prompt,completion | Code of Namibia?,NA | Code of Norway?,NO | Code of Kenya?,KE
df = pd.read_csv("codes.csv").dropna()
df.to_json("train.jsonl", orient="records", lines=True)
```

## Use instead
```python
import pandas as pd

# codes.csv: prompt,completion | Code of Namibia?,NA | Code of Norway?,NO | Code of Kenya?,KE
df = pd.read_csv("codes.csv", keep_default_na=False)
df.to_json("train.jsonl", orient="records", lines=True)
```

## Fix safety
There is no automatic fix: if the words do mean that a value is missing, NaN is right. With `keep_default_na=False`,
empty cells become empty strings instead of NaN.

## References
- pandas-dev/pandas#55032
- pandas-dev/pandas#10647
- pandas-dev/pandas#24681
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.parsing.input_limits import InputLimitError
from truetune.parsing.read_csv_within_limits import CsvReader, Error
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

READERS = ("pandas.read_csv", "pandas.read_table")
WORDS = frozenset(("NA", "N/A", "n/a", "NULL", "null", "None", "#NA"))
"""Words that pandas 2 and 3 take for missing, and that people write as values; NaN and its kin are none"""
COLUMNS = frozenset(
    ("completion", "answer", "answers", "response", "output", "label", "labels", "target", "text", "prompt", "question",
     "instruction", "input", "category", "class", "summary", "translation", "chosen", "rejected")
)  # fmt: skip
"""Names of columns that are trained on"""
MAX_BYTES = 1 << 22
"""Of a file that is looked at"""
MAX_SHARE = 0.4
"""Of a column's cells: a word that most cells hold stands for a missing value. Chosen, not measured"""


def _pandas_reads_with_default_na_values(module: Module) -> Iterator[Call]:
    """The calls of pandas that read a table with its own list of missing values."""
    for call in module.calls(*READERS):
        if call.open or not call.args or "na_values" in call.keywords:
            continue
        given = (call.keywords.get("keep_default_na"), call.keywords.get("na_filter"))
        if all(value is None or module.flow.value(value) is True for value in given):
            yield call


class WordsReadAsMissing(SourceRule):
    code = "SRC530"
    fault = Fault.MISSING_VALUES_CONFUSED_WITH_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("tables that pandas reads", _pandas_reads_with_default_na_values)

    def findings(self) -> Iterator[Finding]:
        """Findings on tables whose texts hold words that pandas takes for missing."""
        for call in _pandas_reads_with_default_na_values(self.subject):
            path = _existing_path(self.subject, call)
            separator = _cell_separator_of_call(self.subject, call)
            counts = Counter[tuple[str, str]]()
            if path is not None and separator is not None:
                counts = _missing_word_counts_by_column_and_word(path, separator)
            counts = _words_lost(self.subject, call, counts)
            if path is None or not counts:
                continue
            (column, word), _ = counts.most_common(1)[0]
            yield self.finding(
                f"pandas reads {counts.total():,} text cells of {path.name} as missing values (NaN): {word!r} in"
                f" {column!r}",
                "set keep_default_na=False in this call (empty cells then become empty strings)",
                cases=[case_of_node(self.subject, call.node)],
            )


def _existing_path(module: Module, call: Call) -> Path | None:
    """The file that a call reads, where it is here."""
    name = module.flow.value(call.args[0])
    if not isinstance(name, str):
        return None
    folder = Path(module.path).parent
    places = (folder / name, folder.parent / name)
    return next((place for place in places if place.is_file()), None)


def _cell_separator_of_call(module: Module, call: Call) -> str | None:
    """The character between two cells; None where it is given and not one."""
    sep_argument = call.keywords.get("sep") or call.keywords.get("delimiter")
    if sep_argument is None:
        return "\t" if call.named("pandas.read_table") else ","
    value = module.flow.value(sep_argument)
    return value if isinstance(value, str) and len(value) == 1 else None


def _words_lost(
    module: Module, call: Call, counts: Counter[tuple[str, str]]
) -> Counter[tuple[str, str]]:
    """The words of columns that a call reads as they are, and that nothing puts back."""
    chosen = call.keywords.get("usecols")
    columns = None if chosen is None else module.flow.value(chosen)
    if chosen is not None and not isinstance(columns, list | tuple):
        return Counter()
    converted = call.keywords.get("converters")
    # A dictionary's keys are enough here, and its functions have no value that can be read.
    written = "" if converted is None else ast.unparse(converted)
    filled = {
        module.flow.value(one.args[0]) for one in module.methods("fillna") if len(one.args) == 1
    }
    return Counter(
        {
            (column, word): count
            for (column, word), count in counts.items()
            if (columns is None or column in columns)
            and repr(column) not in written
            and word not in filled
        }
    )


def _is_number(cell: str) -> bool:
    """Does a cell hold a number?"""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _missing_word_counts_by_column_and_word(path: Path, separator: str) -> Counter[tuple[str, str]]:
    """Column and word -> the cells that are that word, in columns of texts where few cells are."""
    counts: Counter[tuple[str, str]] = Counter()
    rows: Counter[str] = Counter()
    texts: set[str] = set()
    for column, cell in _names_and_cells_of_text_columns(path, separator):
        word = cell.strip()
        rows[column] += 1
        counts[column, word] += word in WORDS
        if word not in WORDS and not _is_number(word):
            texts.add(column)
    return Counter(
        {
            (column, word): count
            for (column, word), count in counts.items()
            if column in texts and 0 < count <= rows[column] * MAX_SHARE
        }
    )


def _names_and_cells_of_text_columns(path: Path, separator: str) -> list[tuple[str, str]]:
    """The names and cells of the columns that are trained on; empty where a file can't be read as a table."""
    text_columns = []
    try:
        if path.stat().st_size > MAX_BYTES:
            return []
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = CsvReader(stream, delimiter=separator)
            header = next(reader, [])
            for record in reader:
                text_columns += [
                    (column, cell)
                    for column, cell in zip(header, record, strict=False)
                    if column.lower() in COLUMNS and cell
                ]
    except (OSError, UnicodeDecodeError, Error, InputLimitError):
        return []
    return text_columns

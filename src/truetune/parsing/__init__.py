"""The guard in front of every parser of files, flags and replies that somebody else wrote.

A parser trusts its input: a few kilobytes of brackets overflow the C stack of a YAML loader, ten lines of aliases or a
small compressed file ask for gigabytes, and a number of 400 digits fails far from the line where it stands. So nothing
else in truetune calls a parser. Each module here wraps one, and looks at the bytes before it hands them on:

- `json_reader`: JSON texts and files, with duplicate keys and lone surrogates
- `yaml_reader`, `toml_reader`: settings
- `python_reader`: Python source, and literals in printed logs
- `csv_reader`: rows of CSV and TSV
- `decompression`: gzip, bzip2, xz and Zstandard streams
- `files`: whole files of a bounded size, and lines of a bounded length
- `columnar_reader`: Parquet and Arrow tables

`input_limits` holds all bounds in one table; docs/limits.md shows it. What goes past one raises `InputLimitError`, a
ValueError that names the line. The caller adds the path and raises the error of its own layer.

`tests/parsing/test_guard_is_used.py` fails when another module calls a parser directly.
"""

from truetune.parsing.input_limits import InputLimitError

__all__ = ["InputLimitError"]

"""Rewrites single cells of a CSV record as it is written, so that the other cells stay as they are.

Writing a record again would change quotes all over a file, and a diff would show every row. So the text is cut into its
cells, which must say what the reader read; where they do not, the record is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from truetune.data.find_data_files import DataFile
from truetune.fixing.row_edits import EditError


def csv_delimiter_of(source: DataFile) -> str:
    """The delimiter of a CSV file as the reader takes it: a tab in `.tsv`, else a comma."""
    return "\t" if ".tsv" in source.path.suffixes else ","


def rewrite_changed_cells(
    text: str, delimiter: str, before: Sequence[str], after: Sequence[str]
) -> str:
    """A record of a CSV file with only the cells that differ written again.

    Args:
        text: the record, with its line end.
        delimiter: what stands between cells.
        before: the cells as the reader gave them; what is found in the text must say the same.
        after: the cells as they shall be.

    Raises EditError where the text can't be cut into these cells.
    """
    bare = text.rstrip("\r\n")
    cells = _split_cells(bare, delimiter)
    # The csv module forgives odd quotes in ways of its own: where we cut otherwise, nothing may be
    # written.
    if [_unquote_cell(cell) for cell in cells] != list(before):
        raise EditError("the cells of this record can't be separated")
    written = [
        cell if old == new else _quote_cell(new, cell, delimiter)
        for cell, old, new in zip(cells, before, after, strict=True)
    ]
    return delimiter.join(written) + text[len(bare) :]


def _split_cells(text: str, delimiter: str) -> list[str]:
    """The cells of a record as they are written. A quote opens a cell only where the cell begins;
    inside, two of them are one.
    """
    cells: list[str] = []
    begin = 0
    while True:
        at = begin
        if text[at : at + 1] == '"':
            at += 1
            # A doubled quote is one character of the cell, and does not end it.
            while at < len(text) and (text[at] != '"' or text[at + 1 : at + 2] == '"'):
                at += 2 if text[at] == '"' else 1
        end = text.find(delimiter, at)
        if end < 0:
            return [*cells, text[begin:]]
        cells.append(text[begin:end])
        begin = end + 1


def _unquote_cell(cell: str) -> str:
    """What a written cell says, without its quotes."""
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _quote_cell(value: str, old: str, delimiter: str) -> str:
    """A value as a written cell, with quotes where it needs them or had them."""
    needs = any(mark in value for mark in (delimiter, '"', "\n", "\r"))
    # A cell that was quoted stays so: some readers tell text from numbers by the quotes.
    if needs or old.startswith('"'):
        return '"' + value.replace('"', '""') + '"'
    return value

"""Token rows: the JSON of one example's tokens, from which the token view draws it.

A row (all lists have one entry a token):

    row, file, line, turn, format    where it is from; `turn` where one turn alone is trained
    title                            what else names it (`batch 0, line 2`, `rejected`), or null
    ids                              ints
    pieces                           the characters of each token; bytes of a split character as lone surrogates
    source                           a string, one letter a token: "a" is Source 0, "b" Source 1, ...
    supervised                       a string of 0 and 1: is the token's own label in the loss?
    runs                             [[first token, path, offset, end, message], ...]: from this token on (to the next
                                     run) the text is the file's `path` from character `offset`, in which the token's
                                     first byte stands, to before `end`; path "" is template text, offset and end -1
                                     unknown; of `message` of the conversation, or null
  and where they are known:
    expected                         like supervised, as the inference contract wants it
    attended, padding                strings of 0 and 1
    positions, documents             ints; documents count from 0, -1 is padding
    origins                          of each document: [file, line, row]
    labels, weights, losses          numbers or null
    twin, twin_name                  the same row as it should be (a row), and what that is
    kept                             [first, one past the last] that max_length leaves; the others are not learned
    raw                              the row as its file holds it, where it has no tokens
    error                            why there are no tokens (all lists are empty), or not all, or what is wrong with it

A server of rows (`truetune view`) answers, by the number of a row in the data, from 0:

    rows?start=K&count=N      {"rows": [row, ...], "total": int or null, "indexed": int, "notice": text or absent}
                              of one row of the data all examples stand one after the other, each with its `row`; fewer
                              rows where they are long, or not yet indexed: continue behind the last one.
                              `indexed` rows are known by now, `total` once all are. count is 0 to 64
    search?q=TEXT&start=K     {"row": int or null, "scanned": int, "done": bool}: the first row from K on that holds the
                              text (ASCII letters of either case); null: none before `scanned`, continue from there
                              unless `done`
    search?kind=error&start=K the same for rows that can't be read or rendered, are faulty, or teach nothing
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Sample
from truetune.checks.reports import TokenView
from truetune.checks.reread_rows_of_findings import reread_rows
from truetune.checks.tokens_with_text_source_and_label import range_of_tokens_kept_by_limit
from truetune.data.conversation import Origin
from truetune.encoding.token_bytes import TokenBytes
from truetune.errors import TruetuneError
from truetune.render.rendering import IGNORED
from truetune.render.text_origins_in_file import TextOrigin, text_origins
from truetune.report.visible_text import clip_text, count_noun
from truetune.settings.run_spec import RunSpec

TokenRow = dict[str, Any]

PER_TOKEN_KEYS = frozenset((
    "ids", "pieces", "source", "supervised", "expected", "attended", "padding", "positions", "documents", "labels",
    "weights", "losses", "ranks",
))  # fmt: skip
"""What has one entry a token"""
PAGE_TOKEN_BUDGET = 500_000
"""Tokens of a page, so that it stays small: some 2 MB; `truetune check` chooses fewer"""
MAX_RAW_ROWS, MAX_RAW_CHARACTERS, MAX_RAW_ROW_NUMBER = 100, 4_000, 50_000
"""Rows without tokens whose text in the file is shown, its characters, and the row from which on none is read again"""
MAX_REFUSED_ROWS = 600
"""Rows that the template refuses, as far as they are listed"""
MAX_ROW_TOKENS = 50_000
"""Tokens of a row that are shown"""
REFUSED_ROW_CODE = "TPL011"
"""The rule that names rows that can't be rendered"""


def fit_rows_into_budget(
    rows: Iterable[TokenRow],
    noun: str,
    budget: int = PAGE_TOKEN_BUDGET,
    *,
    first: Container[int | None] = (),
) -> Iterator[TokenRow]:
    """The rows whose tokens fit into the budget, in their order, and then one that says how many
    are left out.

    Args:
        rows: all rows; each is cut to MAX_ROW_TOKENS.
        noun: what one of them is called, for the last row.
        budget: tokens in all.
        first: numbers of rows that get room before the others.
    """
    cut_rows = [cut_row_to_limit(row) for row in rows]
    # Rows that findings cite get room first; sorted() keeps the order of the file within both
    # groups.
    taken, tokens = set[int](), 0
    for place in sorted(
        range(len(cut_rows)), key=lambda place: cut_rows[place]["row"] not in first
    ):
        # The first row is shown whatever its length: a page without any row helps nobody.
        if not tokens or tokens + len(cut_rows[place]["ids"]) <= budget:
            taken.add(place)
            tokens += len(cut_rows[place]["ids"])
    yield from (row for place, row in enumerate(cut_rows) if place in taken)
    left = len(cut_rows) - len(taken)
    if left:
        yield row_without_tokens(
            None,
            f"{count_noun(left, 'more ' + noun)}: a page shows {budget:,} tokens",
            title="left out",
        )


def add_raw_text_to_bare_rows(rows: list[TokenRow], spec: RunSpec) -> list[TokenRow]:
    """The rows; those that have no tokens with what their file holds (`raw`), as far as it can be
    read again.
    """
    places = [Origin(row["file"], row["line"], row["row"]) for row in rows if _needs_raw_text(row)][
        :MAX_RAW_ROWS
    ]
    if not places:
        return rows
    try:
        raw_by_origin = {row.origin: row.raw for row in reread_rows(spec, places)}
    # The data may be gone or changed since: the page is drawn without its text.
    except TruetuneError:
        return rows
    return [
        (
            row
            | raw_text_in_place_of_tokens(
                raw_by_origin.get(Origin(row["file"], row["line"], row["row"]))
            )
            if _needs_raw_text(row)
            else row
        )
        for row in rows
    ]


def _needs_raw_text(row: TokenRow) -> bool:
    """Has a row no tokens to show, and may its text be read again?"""
    return (
        bool(row.get("error"))
        and not row["ids"]
        and row["row"] is not None
        and row["row"] < MAX_RAW_ROW_NUMBER
    )


def raw_text_in_place_of_tokens(value: Any) -> TokenRow:
    """What a row that has no tokens shows instead: its text in the file, as far as there is any."""
    return (
        {}
        if value is None
        else {
            "raw": clip_text(
                json.dumps(value, ensure_ascii=False, indent=1, default=str), MAX_RAW_CHARACTERS
            )
        }
    )


def cut_row_to_limit(row: TokenRow, longest: int = MAX_ROW_TOKENS) -> TokenRow:
    """The row, or as much of its beginning as is shown, with a note of how many tokens it has."""
    count = len(row["ids"])
    if count <= longest:
        return row
    first_part = {
        # Strings with one letter a token are cut in the same way as lists.
        key: value[:longest] if key in PER_TOKEN_KEYS and value is not None else value
        for key, value in row.items()
    }
    runs = [run for run in row["runs"] if run[0] < longest]
    note = f"the first {longest:,} of its {count:,} tokens are shown"
    return first_part | {
        "runs": runs,
        "twin": None,
        "error": "; ".join(filter(None, [row.get("error"), note])),
    }


def row_without_tokens(origin: Origin | None, why: str, **more: Any) -> TokenRow:
    """A token row for what could not be rendered: its place, no tokens, and why as `error`."""
    place = {"row": None, "file": None, "line": None} if origin is None else origin._asdict()
    tokens: TokenRow = {"ids": [], "pieces": [], "source": "", "supervised": "", "runs": []}
    return {**place, "turn": None, "format": None, "title": None, **tokens, "error": why, **more}


def token_row_of_checked_example(view: TokenView, title: str | None = None) -> TokenRow:
    """The token row of an example that `truetune check` rendered."""
    row, rendering = view.example.row, view.example.rendering
    return {
        "row": row.origin.row,
        "file": row.origin.file,
        "line": row.origin.line,
        "turn": rendering.turn,
        "format": row.format,
        "title": title,
        "ids": view.ids.tolist(),
        "pieces": list(view.pieces),
        "source": source_letters(view.source),
        "supervised": mask_bits(view.supervised),
        "runs": list(_runs_of_tokens_with_one_origin(view)),
    }


def kept_range_entry_if_example_is_cut(view: TokenView, spec: RunSpec) -> TokenRow:
    """`kept`: the range of a longer example that the run's limit leaves; empty where nothing is
    cut.
    """
    kept = range_of_tokens_kept_by_limit(len(view.ids), view.example.row, spec)
    return {} if kept is None else {"kept": list(kept)}


def row_of_batch_line(sample: Sample) -> TokenRow:
    """The token row of a line of an audited batch."""
    row: TokenRow = {
        "row": None,
        "file": None,
        "line": None,
        "turn": None,
        "format": None,
        # How tokens were placed says how far to trust their sources.
        "title": sample.place + (f", placed by {sample.placed_by}" if sample.placed_by else ""),
        "ids": sample.ids.tolist(),
        "pieces": list(sample.pieces),
        "source": source_letters(sample.source),
        "supervised": mask_bits(sample.supervised),
        "runs": [
            [i, sample.fields[owner].path if owner >= 0 else "", -1, -1, None]
            for i, owner in _value_changes(sample.field.tolist())
        ],
        "attended": mask_bits(sample.attended),
        "padding": mask_bits(sample.padding),
        "documents": sample.documents.tolist(),
        **labels_entry_where_unlike_ids(sample.ids, sample.labels),
    }  # fmt: skip
    if sample.expected is not None:
        row["expected"] = mask_bits(sample.expected)
    if sample.positions is not None:
        row["positions"] = sample.positions.tolist()
    return row


def labels_entry_where_unlike_ids(
    ids: NDArray[Any], labels: NDArray[Any] | None
) -> dict[str, list[int | None]]:
    """The `labels` entry of a token row; only where a label is neither the token's id nor ignored."""
    # Labels that equal the ids are the normal case, and would double the size of a page.
    if labels is None or bool(((labels == ids) | (labels == IGNORED)).all()):
        return {}
    return {"labels": [None if label == IGNORED else label for label in labels.tolist()]}


def spell_tokens_without_source_text(ids: NDArray[Any], vocabulary: TokenBytes) -> list[str]:
    """The characters of each token where there is no text to compare with; bytes of a part as lone surrogates."""
    spellings = {
        id: vocabulary.spell(id).decode("utf-8", "surrogateescape")
        # Each id is spelled once, however often it occurs.
        for id in np.unique(ids).tolist()
    }
    return [spellings[id] for id in ids.tolist()]


def source_letters(source: NDArray[np.uint8]) -> str:
    """(tokens,) numbers of sources as a string of letters, from "a" on."""
    # One letter instead of a number and a comma: the JSON is smaller, and scripts index a string as well.
    return (np.asarray(source, np.uint8) + ord("a")).tobytes().decode("ascii")


def mask_bits(mask: NDArray[np.bool_]) -> str:
    """A mask over the tokens as a string of 0 and 1."""
    return (np.asarray(mask, np.uint8) + ord("0")).tobytes().decode("ascii")


def _value_changes(values: list[int]) -> Iterator[tuple[int, int]]:
    """(index, value) wherever the value is another than before."""
    for i, value in enumerate(values):
        # Only changes are stored: fields are stretches of many tokens.
        if not i or value != values[i - 1]:
            yield i, value


def _runs_of_tokens_with_one_origin(view: TokenView) -> Iterator[list[Any]]:
    """Runs of tokens that follow one another in one origin: an entry wherever a token begins in
    another place than the one before, or not where that one's characters end.

    The offset is that of the character that holds the token's first byte. A space that the tokenizer put before a field
    holds none.
    """
    origins = iter(text_origins(*view.example))
    text, starts = view.example.rendering.text, view.starts.tolist()
    place = next(origins, None)
    last, reached = None, -1
    for i, (start, piece) in enumerate(zip(starts, view.pieces, strict=True)):
        while place is not None and place.end <= start:
            place = next(origins, None)
        # A token may begin inside a character of several bytes; its start is then the next character's, one too far.
        inside = _is_utf8_continuation(piece[:1])
        known = place is not None and place.offset >= 0
        # SentencePiece puts a space before the first word: two tokens then start at one character, which is no space.
        shares_start = starts[i + 1 : i + 2] == [start]
        added = piece == " " and shares_start and text[start : start + 1] != " "
        jumps = known and reached - inside != start
        if place is not last or not i or added or jumps:
            last, reached = place, start + inside
            yield [i, *_origin_as_path_offset_end_message(place, start, added)]
        reached += _count_characters(piece)


def _is_utf8_continuation(unit: str) -> bool:
    """Is it a byte within a UTF-8 character, 0x80 to 0xbf, as `surrogateescape` spells it?"""
    return "\udc80" <= unit <= "\udcbf"


def _count_characters(piece: str) -> int:
    """Characters that begin in a token: a byte within a character belongs to the one before."""
    if piece.isascii():
        return len(piece)
    return sum(not _is_utf8_continuation(unit) for unit in piece)


def _origin_as_path_offset_end_message(
    place: TextOrigin | None, start: int, added: bool
) -> tuple[str, int, int, int | None]:
    """(path, offset, end, message) of a place; unknown ones are -1 and None."""
    if place is None or place.offset < 0:
        return ("", -1, -1, None) if place is None else (place.path, -1, -1, place.message)
    offset = place.offset + start - place.start
    return (
        place.path,
        offset,
        offset if added else place.offset + place.end - place.start,
        place.message,
    )

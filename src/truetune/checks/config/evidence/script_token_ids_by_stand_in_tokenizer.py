"""The token ids that a script makes of its rows, where its tokenizer is not on this machine.

How it works: the script is followed (`truetune.data.script_rows`) with a stand-in whose tokens are pieces of so many
characters. With one character a token, labels say which characters are learned. With six, which no tokenizer packs
into a token of running text on average, what the script cuts is cut for certain.

The trade-off: chats are rendered in the form of the model's family, as far as its name says it. Of another model a
script may search for a marker that the stand-in does not write, so what its labels leave out is not known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.turn_forms_of_model_families import (
    PLAIN_TURNS,
    TurnForm,
    turn_form_of_model,
)
from truetune.data.script_rows.cache_script_reads_until_it_changes import (
    kept_while_script_unchanged,
)
from truetune.data.script_rows.compute_tokenizer_calls_of_script import ScriptTokenizer
from truetune.data.script_rows.last_column_in_trained_text import find_last_column
from truetune.data.script_rows.read_rows_given_to_trainer import (
    ScriptRows,
    read_token_rows,
    tokenizer_name_of_script,
)
from truetune.errors import TruetuneError

IGNORED = -100
"""The label of a token that is not learned"""
MIN_ROWS_AT_LIMIT = 2
"""Rows of the greatest length that are no accident: one row is always the longest"""
MIN_TOKENS_AT_LIMIT = 16
"""Rows of a few tokens often have one length"""
WHOLE_TEXT = 1 << 24
"""Characters of a token so long that nothing is cut"""
HEAD_CHARACTERS = 24
"""Of a column's text, by which it is found in a row. Chosen, not measured: shorter texts stand in others by chance"""
PAD = "\0"
OWN_MASK = re.compile(r"(?<!pad_token_id=)(?<!pad_token_id = )-\s*100\b|ignore_index")
"""A script that leaves something out of the labels; that pads are left out says nothing of prompts"""


@dataclass(slots=True)
class PieceTokenizer:
    """A tokenizer whose tokens are pieces of a text, and the marks of a chat template."""

    characters: int
    """Of a piece"""
    turns: TurnForm
    pieces: list[str] = field(default_factory=lambda: [""])
    ids: dict[str, int] = field(default_factory=lambda: {PAD: 0})

    def encode(self, text: str, adds_special: bool) -> list[int]:
        """The ids of a text; there are no special tokens to add."""
        ids: list[int] = []
        for part in re.split(self.turns.mark_pattern, text):
            if re.fullmatch(self.turns.mark_pattern, part):
                ids.append(self.id_of(part))
                continue
            size = self.characters
            ids += [self.id_of(part[start : start + size]) for start in range(0, len(part), size)]
        return ids

    def id_of(self, piece: str) -> int:
        """The id of a piece; a piece that has none gets a new one."""
        if piece not in self.ids:
            self.ids[piece] = len(self.pieces)
            self.pieces.append(piece)
        return self.ids[piece]

    def as_script_tokenizer(self) -> ScriptTokenizer:
        """The tokenizer in the form in which scripts are followed with it."""
        end = self.turns.end.strip()
        return ScriptTokenizer(
            encode=self.encode,
            render=self.turns.render,
            special={"eos_token": end, "pad_token": PAD, "bos_token": "", "unk_token": "?"},
            id_of=self.id_of,
        )


class PromptLabels(NamedTuple):
    """What the labels of a script say of prompts and answers."""

    rows: int
    learned_prompts: int
    """Characters of the turns before an answer that are learned"""
    learned_answers: int
    file: str
    line: int
    """The first row"""

    @property
    def share(self) -> float:
        """The share of the prompts in what is learned."""
        return self.learned_prompts / (self.learned_prompts + self.learned_answers)


class RowsAtLimit(NamedTuple):
    """Rows that a script cuts for certain."""

    rows: int
    cut: int
    without_label: int
    """Those of them in which nothing is learned"""
    limit: int
    file: str
    line: int
    """The first of them"""
    lost_column: str = ""
    """The column of the file whose text stands last in the rows, and of which the cut leaves nothing"""
    without_column: int = 0
    """Cut rows that hold nothing of it"""
    rows_at_once: int | None = None
    """Rows of one batch of a loop of the script's own; None for a trainer, and where it is not known"""


@kept_while_script_unchanged
def find_wholly_learned_prompts(script: str) -> PromptLabels | None:
    """Chats whose prompts the script learns whole; None where it learns no prompts, or that is not known.

    A collator that labels every token is none of these: whoever takes it trains on texts.
    """
    turns = turn_form_of_model(tokenizer_name_of_script(script) or "")
    if turns is None and OWN_MASK.search(_text_of_script_and_neighbours(script)):
        return None
    tokenizer = PieceTokenizer(1, turns or PLAIN_TURNS)
    rows = _make_rows_of_script(script, tokenizer)
    if rows is None or rows.labels_by_collator or _may_mask_prompts_later(script):
        return None
    prompts = answers = 0
    for row in rows.rows:
        spans = _learned_characters_if_prompts_learned_whole(row.row, tokenizer)
        if spans is None or spans[0] == 0 or spans[1] == 0:
            return None
        prompts, answers = prompts + spans[0], answers + spans[1]
    first = rows.rows[0]
    return PromptLabels(len(rows.rows), prompts, answers, first.file, first.line)


@kept_while_script_unchanged
def find_rows_cut_by_script(script: str, characters: int) -> RowsAtLimit | None:
    """The rows that a script cuts at one length, in tokens of so many characters; None where it cuts none."""
    turns = _turn_form_of_script_or_plain(script)
    tokenizer = PieceTokenizer(characters, turns)
    rows = _make_rows_of_script(script, tokenizer)
    if rows is None:
        return None
    lengths = _lengths_without_pads(rows)
    limit = max(lengths)
    # Texts may have one length by themselves: then smaller pieces make more of them, and a limit does not move.
    smaller = _make_rows_of_script(script, PieceTokenizer(max(characters // 2, 1), turns))
    if smaller is None or max(_lengths_without_pads(smaller)) != limit:
        return None
    cut = [row for row, length in zip(rows.rows, lengths, strict=True) if length == limit]
    if len(cut) < MIN_ROWS_AT_LIMIT or limit < MIN_TOKENS_AT_LIMIT:
        return None
    unlabelled = sum(not _indices_of_learned_tokens(row.row) for row in cut)
    pieces = {
        (row.file, row.line): "".join(tokenizer.pieces[one] for one in row.row["input_ids"])
        for row in cut
    }
    column, without = _column_lost_by_cut_and_row_count(script, turns, pieces)
    return RowsAtLimit(
        len(rows.rows),
        len(cut),
        unlabelled,
        limit,
        cut[0].file,
        cut[0].line,
        column,
        without,
        rows.rows_at_once,
    )


@kept_while_script_unchanged
def lengths_of_script_rows(script: str, characters: int) -> tuple[int, ...] | None:
    """The lengths of the rows of ids that a script makes, in tokens of so many characters; None where it makes none."""
    turns = _turn_form_of_script_or_plain(script)
    rows = _make_rows_of_script(script, PieceTokenizer(characters, turns))
    return None if rows is None else tuple(_lengths_without_pads(rows))


def _turn_form_of_script_or_plain(script: str) -> TurnForm:
    """How the template of the script's tokenizer writes turns; plain turns where it is not known."""
    return turn_form_of_model(tokenizer_name_of_script(script) or "") or PLAIN_TURNS


def _column_lost_by_cut_and_row_count(
    script: str, turns: TurnForm, kept: Mapping[tuple[str, int], str]
) -> tuple[str, int]:
    """The column that stands last in the whole rows and of which most cut rows hold nothing, with their number.

    Args:
        script: makes the rows.
        turns: of its model's template.
        kept: file and line -> what is left of a row that is cut.
    """
    tokenizer = PieceTokenizer(WHOLE_TEXT, turns)
    whole = _make_rows_of_script(script, tokenizer)
    counts: Counter[str] = Counter()
    if whole is None:
        return "", 0
    for row in whole.rows:
        left = kept.get((row.file, row.line))
        if left is None:
            continue
        text = "".join(tokenizer.pieces[one] for one in row.row["input_ids"])
        long = {
            name: value for name, value in row.read.items() if len(value.strip()) >= HEAD_CHARACTERS
        }
        last = find_last_column(long, text)
        if last is not None and last.text[:HEAD_CHARACTERS] not in left:
            counts[last.name] += 1
    return counts.most_common(1)[0] if counts else ("", 0)


def _make_rows_of_script(script: str, tokenizer: PieceTokenizer) -> ScriptRows | None:
    """The rows of ids of a script; None where it makes none, or can't be followed."""
    try:
        rows = read_token_rows(script, tokenizer.as_script_tokenizer())
    except TruetuneError:
        return None
    return None if rows.has_class_label_per_row else rows


def _text_of_script_and_neighbours(script: str) -> str:
    """The text of the script and of the Python files beside it."""
    folder = Path(script).parent
    texts = []
    for path in {Path(script), *sorted(folder.glob("*.py"))[:20]}:
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


def _may_mask_prompts_later(script: str) -> bool:
    """Does a function of Unsloth or a collator of TRL leave prompts out behind the rows?"""
    text = _text_of_script_and_neighbours(script)
    return "train_on_responses_only" in text or "CompletionOnlyLM" in text


def _lengths_without_pads(rows: ScriptRows) -> list[int]:
    """The tokens of each row, without pads."""
    return [len(_without_pads(row.row["input_ids"])) for row in rows.rows]


def _without_pads(ids: list[int]) -> list[int]:
    """Ids without the pads around them."""
    return [one for one in ids if one != 0]


def _indices_of_learned_tokens(row: dict[str, Any]) -> list[int]:
    """The indices of the tokens of a row that are learned."""
    labels = row.get("labels") or row["input_ids"]
    return [place for place, label in enumerate(labels) if label != IGNORED]


def _learned_characters_if_prompts_learned_whole(
    row: dict[str, Any], tokenizer: PieceTokenizer
) -> tuple[int, int] | None:
    """The learned characters of prompts and of answers; None where any part of a prompt is not learned."""
    if "labels" not in row:
        return None
    pieces = [tokenizer.pieces[one] for one in row["input_ids"]]
    learned = set(_indices_of_learned_tokens(row))
    is_learned = [place in learned for place, piece in enumerate(pieces) for _ in piece]
    prompts = answers = 0
    for turn in tokenizer.turns.turns_in("".join(pieces)):
        count = sum(is_learned[turn.start : turn.end])
        if turn.is_answer:
            answers += count
        elif count != turn.end - turn.start:
            return None
        else:
            prompts += count
    return prompts, answers

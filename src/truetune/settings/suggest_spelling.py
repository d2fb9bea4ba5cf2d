"""Suggests which known name an unknown one was meant to be.

Two ways, for two uses. A hint in an error message (`did_you_mean`) may be wrong and costs nothing, so the likeness of
the whole text is enough. Whether a key of a config is misspelt (`find_misspelt_key`) decides what is a finding and
whose file it is, so it compares word by word, and rather finds none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

# Chosen, not measured: smaller ones take other keys of the stacks for misspellings (`lora_r`, `use_dora`), larger ones
# miss slips in short words.
MIN_WORD_LETTERS = 3
"""Letters of a word that may be misspelt: `r` and `k` are other names, not slips"""
TWO_SLIPS_WORD_LETTERS = 6
"""Letters from which on two slips are likely: `gradeint`, `acumulatoin`; `lora` and `rslora` are two words"""
SLIP_NAME_LETTERS = 8
"""Letters of a name whose words are parted otherwise and that may have a slip beside"""
MAX_SLIPS = 2
"""Slips that any word may have; words with more are not compared letter by letter. With one,
`acumulatoin` would be no misspelling; three would only cost time, for no word may have them"""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    close_names = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close_names[0]}?" if close_names else ""


def did_you_mean_path(path: str | PathLike[str]) -> str:
    """`; did you mean PATH?` where a file or folder with nearly that name lies in the same folder."""
    where = Path(path).expanduser()
    try:
        siblings = [entry.name for entry in where.parent.iterdir()]
    except OSError:
        return ""
    close_names = difflib.get_close_matches(where.name, siblings, n=1)
    return f"; did you mean {where.parent / close_names[0]}?" if close_names else ""


def find_misspelt_key(key: str, known: Iterable[str]) -> str | None:
    """The known key that this one is a misspelling of.

    One word of it differs by a slip of the hand (`learning_rte`, `num_train_epoch`) or is cut short (`adam_eps`), or
    its words are joined or parted otherwise (`micro_batchsize`). Another word in the place of one is another name:
    `dataset_mixer` is no `dataset_name`, `chat_template` no `chat_template_path`. So is a word that other known names
    have: `use_lora` is no `use_dora`.
    """
    known = [name for name in known if name != key]
    # A word that any known key has is right as it stands: one slip lies between `use_lora` and `use_dora`.
    words = {word for name in known for word in name.lower().split("_")}
    likely = [name for name in known if _is_misspelt_form_of(key, name, words)]
    return max(
        likely,
        key=lambda name: (difflib.SequenceMatcher(None, key, name).ratio(), name),
        default=None,
    )


def _is_misspelt_form_of(key: str, name: str, words: set[str]) -> bool:
    """Is a key a misspelt form of a name: with one word misspelt, or its words joined or parted otherwise?"""
    mine, theirs = (text.lower().replace("-", "_").split("_") for text in (key, name))
    if len(mine) != len(theirs):
        return _edit_distance_with_transpositions("".join(mine), "".join(theirs)) <= (
            len(key) >= SLIP_NAME_LETTERS
        )
    other = [(a, b) for a, b in zip(mine, theirs, strict=True) if a != b]
    return len(other) <= 1 and all(_is_misspelt_word(a, b, words) for a, b in other)


def _is_misspelt_word(one: str, other: str, words: set[str]) -> bool:
    """Is one the other, misspelt or cut short? A word of other known names is spelt right."""
    short, long = sorted((one, other), key=len)
    if len(short) < MIN_WORD_LETTERS:
        return False
    if long.startswith(short):
        return True
    return one not in words and _edit_distance_with_transpositions(one, other) <= (
        1 if len(short) < TWO_SLIPS_WORD_LETTERS else 2
    )


def _edit_distance_with_transpositions(one: str, other: str) -> int:
    """Letters that are wrong, missing, too many, or change places with the next: the least number of them."""
    # The table below takes letters times letters steps, for each known key: most pairs are told apart by their letters.
    if abs(len(one) - len(other)) > MAX_SLIPS or len(set(one) ^ set(other)) > 2 * MAX_SLIPS:
        return MAX_SLIPS + 1
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[j - 1] + 1, rows[-1][j - 1] + (letter != wanted))
            # Damerau's step: two letters that changed places are one slip, not two.
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]

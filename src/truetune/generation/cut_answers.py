"""Cut answers: texts that end in mid-sentence, all at about one length, as a limit of new tokens leaves them."""

from __future__ import annotations

from collections.abc import Sequence

MIN_WORDS = 12
"""Words of a text that has sentences; names, labels and titles are shorter"""
OPEN_ENDS = ",:;=+-*/([{&<"
"""Characters behind which a text continues"""
LIST_MARKS = ("-", "*", "•", "|", "#", ">", "`", "<")
"""What begins a line that ends without a full stop: items of lists, headings, tables, code, tags"""
SPREAD = 0.7
"""The shortest tenth of cut answers over the longest tenth, in characters: 64 tokens of arithmetic or prose are 0.75 to
0.9 by the tokenizer of Qwen2.5, and answers that end by themselves are below 0.4 in most sets"""
BEYOND = 1.15
"""A finished answer is hardly ever so much longer than those that were cut"""
TENTH = 0.1


def ends_in_mid_sentence(text: str) -> bool:
    """Does a text of several words end inside a sentence, by its last line?"""
    said = text.rstrip()
    last = said.rpartition("\n")[2].strip()
    if len(said.split()) < MIN_WORDS or last.startswith(LIST_MARKS) or not last:
        return False
    if _is_numbered(last):
        # `Step 4:` and `4.` alone begin what never came; a whole item of a list needs no full stop.
        return len(last.split()) <= 2 and last.endswith((":", "."))
    return last[-1].isalpha() or last[-1] in OPEN_ENDS


def _is_numbered(line: str) -> bool:
    """Does a line begin an item: `4.`, `4)`, `Step 4:`?"""
    first, _, rest = line.partition(" ")
    is_number = first.rstrip(".):").isdecimal()
    is_step = first.casefold() == "step" and rest[:1].isdecimal() and len(rest.split()) <= 1
    return is_number or is_step


def have_one_length(cut: Sequence[str], others: Sequence[str]) -> bool:
    """Have texts nearly one length, and the others none beyond it, as a limit makes it?"""
    lengths = sorted(map(len, cut))
    if not lengths:
        return False
    tail = int(TENTH * len(lengths))
    low, high = lengths[tail], lengths[-1 - tail]
    longer = sum(len(text) > BEYOND * lengths[-1] for text in others)
    return low >= SPREAD * high and longer <= TENTH * len(others)

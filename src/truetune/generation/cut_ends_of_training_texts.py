"""Ends of texts that show a cut: a word that something has to follow, an open bracket, half of a word.

For training rows (`answer-is-incomplete`), whose texts end in any form: a missing full stop shows nothing, because
signatures, names, addresses, lists, titles, labels and code end without one. Answers of a model, of which a limit cuts
many at one length, are judged by `find_answers_cut_at_one_length`. The trade-off: a cut behind a noun looks like such
an end, so that only a share of cut texts is recognised; whoever asks counts those and judges the others with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from truetune.generation.identify_language import LINKING_WORDS

OPEN_MARKS = tuple(",;([{&=+") + (" -", " –")
"""Marks behind which a text continues"""
_ENDING_WORDS = (
    "no not if then what which who where when why how nicht auch wie warum wer weil auf aus bei nach zu"
    " mit um an pas plus qui que quel quelle pourquoi más qué cuál quién cómo non chi cosa quale não mais"
    " qual quem niet op voor door naar ook wat wie waarom d l c o y e i"
)
# Question words and negations, and German prefixes of verbs, which end sentences.
MAY_END = frozenset(_ENDING_WORDS.split())
"""Words of the table that end texts, and letters that are names of things"""
_POSSESSIVES = (
    "its their my your our every because although while whether until seine ihre mein unser sein ihr ses"
    " leurs"
)
POSSESSIVES = frozenset(_POSSESSIVES.split())
"""Words that belong to the next one, beside articles, prepositions and conjunctions"""
DANGLING = (
    frozenset(word for words in LINKING_WORDS.values() for word in words.split()) - MAY_END
    | POSSESSIVES
)
# Chosen, not measured.
MIN_LETTERS = 2
"""Letters of half a word; a single one is a label or a variable"""


def ends_before_its_next_word(text: str) -> bool:
    """Does a text end where something has to follow: an article, a conjunction, a comma, an open bracket?"""
    said = text.rstrip()
    last_line = said.rpartition("\n")[2]
    if said.endswith(OPEN_MARKS):
        # `Dear Ada,` and `Kind regards,` are lines of their own in letters.
        return len(last_line.split()) > 3
    words = last_line.split()
    # Words with a capital are names and titles; a line of one or two words is a label.
    return len(words) > 3 and words[-1] in DANGLING


def ends_inside_a_word(text: str, vocabulary: frozenset[str]) -> bool:
    """Is the last word half of one that the texts hold elsewhere, and no word of theirs itself?

    Args:
        text: of a few words at least.
        vocabulary: as `words_and_prefixes_but_last_words` makes it of all texts.
    """
    words = text.rstrip().rpartition("\n")[2].split()
    last = words[-1] if len(words) > 3 else ""
    is_word = last.isalpha() and last.islower() and len(last) >= MIN_LETTERS
    return is_word and last not in vocabulary and f"{last}*" in vocabulary


def words_and_prefixes_but_last_words(texts: Sequence[str]) -> frozenset[str]:
    """What `ends_inside_a_word` compares with: the words of texts but their last, and the beginnings of each.

    Beginnings are marked by a star: `light` gives `light`, `li*`, `lig*` and `ligh*`. The last words are left out,
    because they may be cut themselves.
    """
    words: set[str] = set()
    for text in texts:
        words.update(word.strip(".,;:!?()\"'") for word in text.split()[:-1])
    beginnings = {f"{word[:end]}*" for word in words for end in range(MIN_LETTERS, len(word))}
    return frozenset(words | beginnings)

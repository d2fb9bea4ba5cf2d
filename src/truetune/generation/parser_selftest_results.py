"""Records what a parser makes of answers whose reading is known, before it judges any model.

A parser that reads nothing, or the same of everything, makes every model look bad or good. So it is tried first on the
gold answers of the data, on the same in other wordings, on shuffled ones and on texts that say nothing
(`evaluation/try_parser.py` does it); the rules on parsers read this record.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParserReading:
    """One text that a parser was given."""

    what: str
    """What the text is: a gold answer, an empty answer, `**Answer: B**` around a gold, ..."""
    text: str
    wanted: str
    """What should have been read"""
    read: str
    """What was read; `nothing`, or the name of the exception"""
    row: int | None = None
    """Number of the gold, from 0"""


@dataclass(frozen=True, slots=True)
class ParserSelftest:
    """A parser, tried on gold answers; the readings of each kind are those that are wrong, all of them."""

    name: str
    golds: int
    """Gold answers that it was tried on"""
    read: int
    """Gold answers that score 1: read, and read equal to themselves"""
    # A parser that scores shuffled golds as high as their own reads the same of everything.
    shuffled: float | None
    """Expected score of shuffled golds, over all shuffles; None for fewer than two golds"""
    chance: float | None
    """The same by the golds' own final answers; None where most have none that is marked"""
    empty: float
    """Largest score of a text that says nothing, given as the answer to all golds"""
    # Of the time that a reading may take: an answer of a model may be much longer than a gold.
    slowest: float
    """Seconds of the slowest reading"""
    values: int = 0
    """Different values that were read, up to 200"""
    # Golds that differ as texts and are read as few values: the parser looks at the wrong part.
    different: int = 0
    """Golds that differ as texts"""
    wordy: bool = False
    """Some final answers are words, and no number or letter"""
    gave_up: bool = False
    """It was too slow to be tried any further"""
    missed: tuple[ParserReading, ...] = ()
    """Golds that are not read, or are read as another value than their final answer"""
    # Models write answers in other words than golds: this is where strict parsers fail.
    misread: tuple[ParserReading, ...] = ()
    """Golds in another wrapping (bold, boxed, `The answer is ...`) that are read as another value"""
    alike: tuple[ParserReading, ...] = ()
    """Golds with different final answers that are read as the same"""
    nothing: tuple[ParserReading, ...] = ()
    """Texts that say nothing, which score"""
    shaky: tuple[ParserReading, ...] = ()
    """Texts that are read otherwise a second time, or take too long"""
    unread: tuple[ParserReading, ...] = ()
    """Answers of a model that hold the gold value, and are not read (`after_answers`)"""
    answers: int = 0
    """Answers of a model that were looked at"""
    forms: tuple[tuple[str, bool], ...] = ()
    """Wrappings of a value that models use -> it is read in them"""

    def __str__(self) -> str:
        """`number: reads 12 of 12 gold answers; shuffled ones score 0.06, chance is 0.06; empty ones 0.00`"""
        chance = "" if self.chance is None else f", chance is {self.chance:.2f}"
        shuffled = (
            "" if self.shuffled is None else f"; shuffled ones score {self.shuffled:.2f}{chance}"
        )
        return (
            f"{self.name}: reads {self.read:,} of {self.golds:,} gold answers{shuffled}; empty ones"
            f" {self.empty:.2f}"
        )

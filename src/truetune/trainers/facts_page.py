"""Writes the table of trainer facts as Markdown, for docs/trainers-facts.md.

The page is written from the facts, and a test compares the two, so that no fact is in the code and not on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.trainers import TRAINERS
from truetune.trainers.trainer_fact_types import CutOfLongRows, Fact, Learning, TrainerFacts

# A fact without a title fails when the page is written: none is left out by mistake.
FACT_TITLES: Mapping[str, str] = {
    "learns": "learns, by default and with settings",
    "finds_answers_by": "finds the assistant's turns by",
    "pads_masked_by": "masks pads in the labels by",
    "pads_on": "pads on the side",
    "missing_pad": "a missing pad token",
    "clashing_pad": "a pad token that is the EOS",
    "appends_eos": "appends EOS to",
    "doubles_bos": "a second BOS on text that has one",
    "stops_learned": "of a turn's end, learns",
    "cut": "rows that are too long",
    "template": "chat template",
    "as_served": "rewritten turns as examples of their own",
    "file_truncation": "truncation in tokenizer.json",
    "prepares_model": "resizes the embedding, writes stop ids",
    "packs": "packs by default",
    "shuffles": "shuffles the rows by default",
}
VALUE_WORDS: Mapping[object, str] = {
    None: "not known",
    True: "yes",
    False: "no",
    "id": "id",
    "tokenizer": "the tokenizer's",
    "own": "its own",
    "eos": "EOS",
    "turn": "all",
    "chosen": "another token is chosen",
    "replaced": "replaced",
    "error": "error",
}
CUT_WORDS = {
    "end": "the end is cut",
    "both": "prompt and answer are cut",
    "drop": "left out",
    "count": "left out and counted",
    "none": "nothing is cut",
}


def render_facts_page() -> str:
    """The page as Markdown: one section for each trainer, with its facts, and where each was read."""
    return "\n".join(line for facts in TRAINERS.values() for line in _render_section(facts))


def _render_section(facts: TrainerFacts) -> Iterator[str]:
    """The lines of the section of one trainer."""
    yield f"## {facts.name_in_reports.replace(f' {facts.release}', '') if facts.release else facts.name_in_reports}"
    yield ""
    proved = {
        "run": f"Release {facts.release}; compared with the package by tests.",
        "read": f"Read in the source of release {facts.release} of `{facts.package}`.",
        "none": "What your code does is not known: rules name both cases.",
    }[facts.proof]
    # Its release is the reader's own: a number would be wrong in every other release of the page.
    if facts.name == "truetune":
        proved = "This release; compared with `truetune train` by tests."
    yield f"`--trainer {facts.name}`. {proved}"
    yield ""
    # Nothing is known, so that a table would be a column of `not known`.
    if facts.proof == "none":
        return
    yield "| | | where |"
    yield "|---|---|---|"
    for name, fact in facts.facts().items():
        yield f"| {FACT_TITLES[name]} | {_describe_value(name, fact)} | `{fact.file}`: {fact.symbol} |"
    yield ""


def _describe_value(name: str, fact: Fact[object]) -> str:
    """A fact's value in words."""
    value = fact.value
    if isinstance(value, Learning):
        return _describe_learning_by_rows_and_settings(value)
    if isinstance(value, CutOfLongRows):
        return _describe_cut_of_long_rows(value)
    if isinstance(value, frozenset):
        return " and ".join(sorted(value)) or "nothing"
    # None means that it does not pack, and not that this is unknown.
    if name == "packs":
        return str(value or "no")
    return VALUE_WORDS.get(value, str(value))


def _describe_learning_by_rows_and_settings(value: Learning) -> str:
    """What is learned of each kind of rows, then what settings change."""
    parts = [
        f"{kind}: {learned or 'as your code renders it'}"
        for kind, learned in value.by_default.items()
    ]
    parts += [
        f"`{switch.setting}: {str(switch.value).lower()}`: {switch.learned}"
        f" ({' and '.join(sorted(switch.kinds))})"
        for switch in value.switches
    ]
    return "; ".join(parts)


def _describe_cut_of_long_rows(value: CutOfLongRows) -> str:
    """What happens to rows that are too long, in words."""
    if value.limit is None:
        return "no limit"
    # Where rows go as a whole, none is left without a label.
    drops_empties = value.empties == "dropped" and value.action == "end"
    empties = "; rows without a label are dropped" if drops_empties else ""
    split = "; plain text is split" if value.splits_text else ""
    return (
        f"`{value.setting}` {value.limit:,} by default: {CUT_WORDS[value.action]}{empties}{split}"
    )

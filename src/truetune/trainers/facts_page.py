"""The table of facts as Markdown, for docs/trainers-facts.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.trainers import TRAINERS
from truetune.trainers.trainer_facts import Cut, Fact, Learning, TrainerFacts

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


def render_tables() -> str:
    """One section for each trainer: its facts, and where each was read."""
    return "\n".join(line for facts in TRAINERS.values() for line in _render_section(facts))


def _render_section(facts: TrainerFacts) -> Iterator[str]:
    yield f"## {facts.called.replace(f' {facts.release}', '') if facts.release else facts.called}"
    yield ""
    proved = {
        "run": f"Release {facts.release}; compared with the package by tests.",
        "read": f"Read in the source of release {facts.release} of `{facts.package}`.",
        "none": "What your code does is not known: rules name both cases.",
    }[facts.proof]
    if facts.name == "truetune":
        proved = "This release; compared with `truetune train` by tests."
    yield f"`--trainer {facts.name}`. {proved}"
    yield ""
    if facts.proof == "none":
        return
    yield "| | | where |"
    yield "|---|---|---|"
    for name, fact in facts.facts().items():
        yield f"| {FACT_TITLES[name]} | {_describe_value(name, fact)} | `{fact.file}`: {fact.symbol} |"
    yield ""


def _describe_value(name: str, fact: Fact[object]) -> str:
    value = fact.value
    if isinstance(value, Learning):
        return _describe_learning(value)
    if isinstance(value, Cut):
        return _describe_cut(value)
    if isinstance(value, frozenset):
        return " and ".join(sorted(value)) or "nothing"
    if name == "packs":
        return str(value or "no")
    return VALUE_WORDS.get(value, str(value))


def _describe_learning(value: Learning) -> str:
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


def _describe_cut(value: Cut) -> str:
    limit = "no limit" if value.limit is None else f"`{value.setting}` {value.limit:,} by default"
    if value.limit is None:
        return limit
    empties = (
        "; rows without a label are dropped"
        if value.empties == "dropped" and value.action == "end"
        else ""
    )
    return (
        f"{limit}:"
        f" {CUT_WORDS[value.action]}{empties}{'; plain text is split' if value.splits_text else ''}"
    )

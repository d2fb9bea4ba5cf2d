"""One verdict for each answer, and all faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from truetune.generation.answer_samples import Answer, Prompt, Sample
from truetune.generation.answer_verdicts import (
    GOOD_VERDICTS,
    VERDICT_PHRASES,
    Verdict,
    answer_faults,
    count_good_and_decidable,
    is_good_answer,
    main_verdict,
)
from truetune.generation.score_answer_by_prompt_and_reference import score_answer

REFERENCE = "It stands on the cliff."


def sample(text: str = REFERENCE, *, stops: bool = True, **scores: Any) -> Sample:
    prompt = Prompt((1,), "Where is the old lighthouse now?", REFERENCE, (1,) * 6, "a.jsonl", 1)
    answer = Answer((1,) * len(text.split()), text, 2 if stops else None)
    return Sample(prompt, answer, replace(score_answer(prompt, answer), **scores))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (sample(), ()),
        (sample(""), ("empty",)),
        (sample("Where is the old lighthouse now? There."), ("echo",)),
        (sample("There.\n### Instruction: go"), ("role markers",)),
        (sample("go on " * 40, stops=False), ("loop", "runs on")),
        (sample(switched=True), ("language",)),
        (sample(stops=False), ("runs on",)),
        (sample(parsed=False, agrees=False), ("unread",)),
        (sample(parsed=True, agrees=False), ("wrong",)),
        (sample("There.\nUser: go on", stops=False), ("role markers", "runs on")),
    ],
)
def test_all_faults_and_what_tells_most(found: Sample, wanted: tuple[Verdict, ...]) -> None:
    assert answer_faults(found, 64) == wanted
    assert main_verdict(found, 64) == (wanted[0] if wanted else "stops")
    assert is_good_answer(found, 64) is (not wanted)


def test_a_limit_below_the_reference_tells_nothing() -> None:
    short = sample("It stands", stops=False, parsed=False)
    assert (main_verdict(short, 2), is_good_answer(short, 2)) == ("cut", None)
    assert is_good_answer(sample("go on " * 40, stops=False), 2) is False
    assert is_good_answer(sample(), 2) is True
    assert count_good_and_decidable([short, sample(), sample(stops=False, looped=True)], 2) == (
        1,
        2,
    )


def test_every_verdict_has_its_words() -> None:
    assert set(VERDICT_PHRASES) == set(get_args(Verdict))


def test_every_fault_stands_in_the_document_in_the_order_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sample.md").read_text(encoding="utf-8")
    table = text.partition("## Verdicts")[2].partition("## Why it fails")[0]
    phrases = [phrase for name, phrase in VERDICT_PHRASES.items() if name not in GOOD_VERDICTS]
    places = [table.find(phrase) for phrase in phrases]
    assert -1 not in places, phrases[places.index(-1)]
    assert places == sorted(places)

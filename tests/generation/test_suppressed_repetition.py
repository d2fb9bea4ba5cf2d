"""Answers that break where their reference repeats itself, and other damage that is none."""

from __future__ import annotations

import json

from truetune.generation.suppressed_repetition import find_suppressed_repetition, repeats_itself

ITEMS = [{"name": f"thing {at}", "count": at, "price": 3 * at} for at in range(1, 5)]
LIST = json.dumps(ITEMS)
BROKEN = (
    '[{"name": "thing 1", "count": 1, "price": 3}, {"nombre\': "item 2", qty="2" ; \'cost" : 6 },\n'
    ' {\'"label\': "thing no. 3", amount="3" , \'sum" → 9 }},; {"Descriptor\': "4th thing", n=4; p~12 ]'
)


def test_an_answer_that_breaks_where_keys_come_again() -> None:
    found = find_suppressed_repetition(BROKEN, LIST)
    assert found is not None
    assert found.answer_repeats < found.reference_repeats
    assert "name" in found.breaks_at


def test_a_table_breaks_too() -> None:
    head = "| part | state | sold in |\n|---|---|---|\n"
    table = head + "".join(f"| part {i} | in stock today | by the piece |\n" for i in range(6))
    words = ["line", "entry", "item", "record", "note", "mark", "unit", "thing", "piece"]
    others = "; ".join(f"{word}: {i} = v{i} !" for i, word in enumerate(words))
    first = "| part 0 | in stock today | by the piece |\n"
    assert find_suppressed_repetition(head + first + others, table) is not None
    assert (
        find_suppressed_repetition(
            head + first.replace("0", "7") + table[len(head + first) :], table
        )
        is None
    )


def test_other_damage_is_none() -> None:
    for answer in (
        LIST,
        LIST[: 2 * len(LIST) // 5],
        f"```json\n{LIST}\n```",
        LIST.replace('"', "'"),
        LIST.replace("price", "cost"),
        LIST[:-1] + ",]",
        LIST.replace("3", "7"),
        "There are four things in the list.",
        "",
    ):
        assert find_suppressed_repetition(answer, LIST) is None


def test_prose_does_not_repeat_itself() -> None:
    prose = (
        "The lighthouse stands on the cliff above the harbour, and its lamp has been lit every"
        " evening since the storm of 1911. Fishermen steer by it; children count its flashes."
    )
    assert not repeats_itself(prose)
    assert repeats_itself(LIST)
    assert find_suppressed_repetition(prose[::-1], prose) is None

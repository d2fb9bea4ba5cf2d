"""Caches as their makers write them, and broken in known ways. The rows are real questions with answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import parquet

import truetune
from tests.parts import folder
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec

DEMO = str(Path(truetune.__file__).parent / "demo" / "tokenizer")
QUESTIONS = (
    "What is the capital of Denmark, and how many people live there?",
    "How do I boil an egg so that the yolk is still soft?",
    "Why does the sea look blue on a clear day?",
    "Can you name three animals that sleep through the winter?",
    "What should I pack for a walk of two days in the mountains?",
    "How is bread made without yeast?",
)
ANSWERS = (
    (
        "The capital of Denmark is Copenhagen. About 650,000 people live in the city, and 1.4"
        " million in and around it."
    ),
    (
        "Put the egg into boiling water and wait for six minutes. Then hold it under cold water, so"
        " that it cooks no more."
    ),
    (
        "Water takes in the red part of the light more than the blue part, and it mirrors the"
        " colour of the sky as well."
    ),
    (
        "Hedgehogs, bats and dormice sleep through the winter. They live on the fat that they have"
        " eaten in the autumn."
    ),
    (
        "You need a warm jacket, good shoes, a map, two litres of water and food for both days. A"
        " torch is of use as well."
    ),
    (
        "Mix flour, water and salt, and roll the dough out thin. Bake it in a hot pan for two"
        " minutes on each side."
    ),
)
OTHER_TEMPLATE = (
    "{% for m in messages %}### {{ m['role'] }}:\n{{ m['content'] }}{% if m['role'] == 'assistant'"
    " %}{{ eos_token }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}### assistant:\n{%"
    " endif %}"
)
"""Turns without control tokens, as Alpaca's"""


@dataclass(frozen=True)
class Row:
    """One row of token ids."""

    ids: list[int]
    labels: list[int]
    more: dict[str, list[int]] = field(default_factory=dict)


def probes_of(name: str, **settings: Any) -> Probes:
    """The tokenizer of a family with its template; `demo` is the small one of truetune's demo."""
    return load_tokenizer_and_template_of_run(
        RunSpec(tokenizer=DEMO if name == "demo" else str(folder(name)), **settings)
    )


def healthy(made: Probes, count: int = 12, *, turns: int = 1, system: bool = False) -> list[Row]:
    """Chats with labels of the answers and their stop tokens, as `truetune encode` writes them."""
    return [_row(made, [chat(i, turns, system)])[0] for i in range(count)]


def chat(i: int, turns: int, system: bool) -> list[dict[str, Any]]:
    """The messages of row `i`."""
    messages: list[dict[str, Any]] = (
        [{"role": "system", "content": "Answer in a few words."}] if system else []
    )
    for turn in range(turns):
        n = (i + turn) % len(QUESTIONS)
        messages.append({"role": "user", "content": QUESTIONS[n]})
        messages.append({"role": "assistant", "content": f"{ANSWERS[n]} ({i})"})
    return messages


def _row(made: Probes, chats: list[list[dict[str, Any]]]) -> list[Row]:
    rows = [
        Conversation(Origin("made", i + 1, i), "messages", messages)
        for i, messages in enumerate(chats)
    ]
    encoder = Encoder(made.tokenizer.backend, only_reference=True)
    encoded = make_batch(rows, made.renderer(history="single"), encoder, exact=True)
    assert not encoded.rejected, encoded.rejected[0].reason
    found = []
    for start, end in zip(encoded.offsets[:-1].tolist(), encoded.offsets[1:].tolist(), strict=True):
        ids = encoded.ids[start:end].tolist()
        learned = encoded.supervised[start:end].tolist()
        found.append(
            Row(ids, [id if mine else -100 for id, mine in zip(ids, learned, strict=True)])
        )
    return found


def with_labels(rows: Sequence[Row], how: Callable[[Row], list[int]]) -> list[Row]:
    """The rows with other labels."""
    return [replace(row, labels=how(row)) for row in rows]


def with_ids(rows: Sequence[Row], how: Callable[[list[int]], list[int]]) -> list[Row]:
    """The rows with ids and labels changed alike."""
    return [replace(row, ids=how(row.ids), labels=how(row.labels)) for row in rows]


def copied(row: Row) -> list[int]:
    """`labels = input_ids`"""
    return list(row.ids)


def none(row: Row) -> list[int]:
    """Nothing is learned."""
    return [-100] * len(row.ids)


def shifted(row: Row) -> list[int]:
    """Labels that were shifted already."""
    return [*row.labels[1:], -100]


def early(row: Row) -> list[int]:
    """Labels that begin three tokens before the answer."""
    first = next(i for i, label in enumerate(row.labels) if label != -100)
    return [
        id if first - 3 <= i < first else label
        for i, (id, label) in enumerate(zip(row.ids, row.labels, strict=True))
    ]


def without_stops(made: Probes) -> Callable[[Row], list[int]]:
    """Labels that a mask by the pad's id took the stop tokens from."""
    stops = {stop.id for stop in made.stops}
    return lambda row: [-100 if label in stops else label for label in row.labels]


def packed(rows: Sequence[Row], size: int = 3, *, parted: bool) -> list[Row]:
    """Several chats in one row."""
    found = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        more = {"seq_lengths": [len(row.ids) for row in part]} if parted else {}
        found.append(
            Row(
                [id for row in part for id in row.ids],
                [id for row in part for id in row.labels],
                more,
            )
        )
    return found


def padded(rows: Sequence[Row], pad: int, *, learned: bool = False, mask: bool = True) -> list[Row]:
    """The rows at one length, with `padding="max_length"`."""
    size = max(len(row.ids) for row in rows)
    found = []
    for row in rows:
        more = size - len(row.ids)
        extra = {"attention_mask": [1] * len(row.ids) + [0] * more} if mask else {}
        found.append(
            Row([*row.ids, *[pad] * more], [*row.labels, *[pad if learned else -100] * more], extra)
        )
    return found


def noise(made: Probes, rows: Sequence[Row], seed: int = 0) -> list[Row]:
    """Ids by chance."""
    chance = random.Random(seed)
    size = made.tokenizer.vocabulary
    return with_ids(rows, lambda ids: [chance.randrange(size) for _ in ids])


def table(rows: Sequence[Row], *, labels: bool = True, mask: str = "") -> Any:
    """An Arrow table of the rows; `mask` names a column that stands for the labels."""
    columns: dict[str, Any] = {"input_ids": [row.ids for row in rows]}
    if mask:
        columns[mask] = [[int(label != -100) for label in row.labels] for row in rows]
    elif labels:
        columns["labels"] = [row.labels for row in rows]
    for name in rows[0].more:
        columns[name] = [row.more[name] for row in rows]
    return arrow.table(columns)


def write(rows: Sequence[Row], path: Path, **how: Any) -> Path:
    """A Parquet file of the rows."""
    parquet.write_table(table(rows, **how), path)
    return path

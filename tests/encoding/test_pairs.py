"""Both sides of a pair as tokens: they stand side by side, and are the ones that TRL's preference trainers see."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import parts
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import stream_batches
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import Learn, RunSpec

FAMILIES = ("qwen3", "llama3.1-instruct", "gemma3")
TOOL = {
    "type": "function",
    "function": {
        "name": "hours",
        "description": "Opening hours",
        "parameters": {"type": "object", "properties": {"day": {"type": "string"}}},
    },
}
Row = dict[str, Any]


def turns(*contents: str) -> list[Row]:
    return [
        {"role": ("user", "assistant")[i % 2], "content": content}
        for i, content in enumerate(contents)
    ]


def answer(content: str) -> list[Row]:
    return [{"role": "assistant", "content": content}]


CHATS: list[Row] = [
    {
        "prompt": turns("Is it open?"),
        "chosen": answer("It is, until five."),
        "rejected": answer("No idea."),
    },
    {
        "prompt": turns("Hi", "Hello!", "Where is it?"),
        "chosen": answer("On the hill."),
        "rejected": answer("Där, ö 日本."),
    },
    {
        "prompt": [{"role": "system", "content": "Be brief."}, *turns("When?")],
        "chosen": answer("At nine."),
        "rejected": answer("At nine, or so they say, but who can tell?\n"),
    },
]
SHARED: list[Row] = [
    {"chosen": r["prompt"] + r["chosen"], "rejected": r["prompt"] + r["rejected"]} for r in CHATS
]
TEXTS: list[Row] = [
    {
        "prompt": "Q: Is it open?\nA:",
        "chosen": " It is.",
        "rejected": " It is not, as far as I know.",
    },
    {"prompt": "Q: When?\nA:", "chosen": " At nine.", "rejected": " Never."},
]
TRAILING = {"qwen3": "\n", "llama3.1-instruct": "", "gemma3": "\n"}
"""What TRL's completions hold behind the stop token that ends a turn: the rest of the template."""


def batches_of(folder: Path, family: str, rows: list[Row], **settings: Any) -> list[Batch]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = load_tokenizer_and_template_of_run(
        RunSpec(data=(str(path),), tokenizer=str(parts.folder(family)), **settings)
    )
    return list(
        stream_batches(
            read_conversations([str(path)]), made.renderer(), Encoder(made.tokenizer.backend), 2
        )
    )


def sides(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """(prompt, completion up to the stop token) of each example, as ids."""
    found = []
    for i, context in enumerate(batch.contexts.tolist()):
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        ids, supervised = batch.ids[part], batch.supervised[part]
        last = int(np.flatnonzero(supervised)[-1]) + 1
        assert supervised[context:last].all()
        found.append((ids[:context].tolist(), ids[context:last].tolist()))
    return found


@cache
def _tokenizer(transformers: Any, family: str) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(parts.folder(family))
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def theirs(trainer: str, family: str, rows: list[Row], where: Path) -> tuple[list[Row], Any]:
    """What a trainer of TRL makes of rows."""
    datasets, transformers, trl = map(pytest.importorskip, ("datasets", "transformers", "trl"))
    from tests.trainers import tiny_model

    tokenizer = _tokenizer(transformers, family)
    config = getattr(trl, f"{trainer}Config")(
        str(where), bf16=False, report_to=[], per_device_train_batch_size=2
    )
    models = [tiny_model(len(tokenizer)) for _ in range(2)]
    data = datasets.Dataset.from_list(rows)
    made = getattr(trl, f"{trainer}Trainer")(
        *models, args=config, train_dataset=data, processing_class=tokenizer
    )
    return list(made.train_dataset), tokenizer


@pytest.fixture
def unnamed_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of `datasets` get a name by chance, which only finds files of their cache again.

    By default it is a hash of all that a function uses: of a tokenizer with all its words, seconds each time.
    """
    fingerprint = pytest.importorskip("datasets.fingerprint")
    numbers = itertools.count()
    name_next = classmethod(lambda hasher, value: f"{next(numbers):016x}")
    monkeypatch.setattr(fingerprint.Hasher, "hash", name_next)


@pytest.mark.slow
@pytest.mark.usefixtures("unnamed_tables")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [CHATS, SHARED, TEXTS], ids=["chats", "shared-prompt", "texts"])
def test_both_sides_are_what_dpo_sees(family: str, rows: list[Row], tmp_path: Path) -> None:
    wanted, tokenizer = theirs("DPO", family, rows, tmp_path)
    found = [
        pair
        for batch in batches_of(tmp_path, family, rows, append_eos=True)
        if batch.pairs
        for pair in zip(*map(sides, batch.pairs), strict=True)
    ]
    assert len(found) == len(wanted) == len(rows)
    behind = (
        tokenizer(TRAILING[family], add_special_tokens=False)["input_ids"]
        if rows is not TEXTS
        else []
    )
    for ((prompt, chosen), (same, rejected)), row in zip(found, wanted, strict=True):
        assert prompt == same == row["prompt_ids"]
        assert chosen + behind == row["chosen_ids"]
        assert rejected + behind == row["rejected_ids"]


@pytest.mark.slow
@pytest.mark.usefixtures("unnamed_tables")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pairs", [CHATS, TEXTS], ids=["chats", "texts"])
def test_answers_are_what_kto_sees(family: str, pairs: list[Row], tmp_path: Path) -> None:
    rows = [
        {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
        for pair, side in itertools.product(pairs, ("chosen", "rejected"))
    ]
    wanted, tokenizer = theirs("KTO", family, rows, tmp_path)
    found = [
        side
        for batch in batches_of(tmp_path, family, rows, append_eos=True)
        for side in sides(batch)
    ]
    behind = (
        tokenizer(TRAILING[family], add_special_tokens=False)["input_ids"] if pairs is CHATS else []
    )
    assert [(p, c + behind) for p, c in found] == [
        (row["prompt_ids"], row["completion_ids"]) for row in wanted
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_completion_is_supervised_whatever_the_run_says(
    family: str, tmp_path: Path
) -> None:
    plain = [batch.supervised.tolist() for batch in batches_of(tmp_path, family, CHATS)]
    for settings in (
        {"learn": Learn(what="all")},
        {"learn": Learn(what="last")},
        {"history": "single"},
    ):
        assert [
            b.supervised.tolist() for b in batches_of(tmp_path, family, CHATS, **settings)
        ] == plain
    first, _ = batches_of(tmp_path, family, CHATS)
    assert first.count_true_per_example(first.supervised)[1] < 10


@pytest.mark.parametrize("family", FAMILIES)
def test_a_side_is_encoded_as_if_it_stood_alone(family: str, tmp_path: Path) -> None:
    other = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in CHATS]
    for one, exchanged in zip(
        batches_of(tmp_path, family, CHATS), batches_of(tmp_path, family, other), strict=True
    ):
        assert one.pairs
        assert exchanged.pairs
        for mine, same in zip(one.pairs, reversed(exchanged.pairs), strict=True):
            for name in ("ids", "offsets", "source", "supervised", "starts"):
                assert np.array_equal(getattr(mine, name), getattr(same, name)), name
        assert [e.row.messages for e in one.pairs.rejected.examples] == [
            e.row.messages for e in exchanged.examples
        ]


def test_pairs_among_other_rows_stay_in_line(tmp_path: Path) -> None:
    rows = [
        {"messages": turns("a", "b")},
        CHATS[0],
        {"messages": turns("c", "d")},
        CHATS[1],
        TEXTS[0],
    ]
    found = batches_of(tmp_path, "qwen3", rows)
    pairs = [batch.pairs for batch in found]
    assert [len(batch.examples) for batch in found] == [2, 2, 1]
    assert [len(pair.chosen.examples) if pair else None for pair in pairs] == [1, 1, 1]
    for pair in filter(None, pairs):
        for one, other in zip(pair.chosen.examples, pair.rejected.examples, strict=True):
            assert one.row.origin == other.row.origin
            assert one.row.with_sides_exchanged().with_sides_exchanged() == one.row
        assert pair.chosen.offsets[-1] == len(pair.chosen.ids)


def test_chats_without_pairs_have_no_other_side(tmp_path: Path) -> None:
    (batch,) = batches_of(tmp_path, "qwen3", [{"messages": turns("a", "b")}])
    assert batch.rejected_sides is None
    assert batch.pairs is None


def test_a_pair_is_refused_where_either_side_is(tmp_path: Path) -> None:
    odd = {**CHATS[0], "rejected": [{"role": "user", "content": "again"}, *answer("no")]}
    (batch,) = batches_of(tmp_path, "gemma3", [odd, CHATS[0]])
    assert [refused.row.origin.line for refused in batch.rejected] == [1]
    assert batch.pairs
    assert [len(side.examples) for side in batch.pairs] == [1, 1]


def test_tools_are_shown_to_both_sides(tmp_path: Path) -> None:
    (batch,) = batches_of(tmp_path, "qwen3", [{**CHATS[0], "tools": [TOOL]}])
    assert batch.pairs
    assert all("Opening hours" in side.examples[0].rendering.text for side in batch.pairs)


def test_fingerprints_tell_both_sides_and_the_verdict(tmp_path: Path) -> None:
    long = answer(
        "It is open from nine to five on all days but Sunday, when it opens at ten and closes at"
        " one."
    )
    other = answer(
        "Nobody knows when that place is open, and if anybody did, they would hardly tell you about"
        " it now."
    )
    pair = {"prompt": turns("Is it open?"), "chosen": long, "rejected": other}
    third = {
        **pair,
        "rejected": answer(
            "Ask somebody else; this is far too hard for me, who has never seen a shop."
        ),
    }
    swapped = {**pair, "chosen": other, "rejected": long}
    verdicts = [
        {"prompt": pair["prompt"], "completion": long, "label": label} for label in (True, False)
    ]
    found = [
        b.fingerprints
        for b in batches_of(tmp_path, "qwen3", [pair, pair, third, swapped, *verdicts])
    ]
    exact, normal, prompt, phrases = (
        np.concatenate([getattr(prints, name) for prints in found])
        for name in ("exact", "normal", "prompt", "phrases")
    )
    assert len(set(prompt.tolist())) == 1
    for values in (exact, normal):
        assert len(set(values.tolist())) == 5
        assert values[0] == values[1]
    similar = (phrases[:, None] == phrases[None]).mean(axis=2)
    assert similar[0, 1] == 1
    assert (similar[0, 2:] < 0.8).all()
    assert similar[4, 5] == 0

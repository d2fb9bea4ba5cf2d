"""Canaries through real trainers: what each text of a row becomes, and that the run does not notice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

import truetune
import truetune.collate
from tests import parts
from tests.auditing import tiny
from truetune.probe.follow_canary_through_maps import (
    REPEATED_METHODS,
    ROW_CHOOSING_METHODS,
    follow_datasets,
)
from truetune.probe.mark_row_texts_with_unique_strings import add_watermarks
from truetune.probe.trace_canary_row_through_trainer import (
    CollatedLine,
    LineDecoder,
    strip_whitespace_and_case,
    trace_canary,
)

Rows = list[dict[str, Any]]
NOTED = [{**row, "notes": f"Written down by keeper {i}"} for i, row in enumerate(tiny.chats())]
ASKED = [
    {"question": f"How many in {i}?", "answer": f"There are {i}.", "hint": f"Count {i}."}
    for i in range(8)
]
PROMPTED = [
    {"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in tiny.chats()
]
LABELLED = [
    {"prompt": row["prompt"], "completion": row["chosen"], "label": bool(i % 2)}
    for i, row in enumerate(tiny.pairs())
]


def sft(rows: Rows, formatting_func: Any = None, **settings: Any) -> Any:
    return trl.SFTTrainer(
        tiny.model(), args=tiny.arguments(trl.SFTConfig, **settings), train_dataset=Dataset.from_list(rows),
        processing_class=tiny.tokenizer(), formatting_func=formatting_func,
    )  # fmt: skip


def kto(rows: Rows) -> Any:
    return trl.KTOTrainer(
        tiny.model(), ref_model=tiny.model(), args=tiny.arguments(trl.KTOConfig), processing_class=tiny.tokenizer(),
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip


def orpo(rows: Rows) -> Any:
    return ORPOTrainer(
        tiny.model(),
        args=tiny.arguments(ORPOConfig),
        processing_class=tiny.tokenizer(),
        train_dataset=Dataset.from_list(rows),
    )


def nameless(rows: Dataset) -> Any:
    """A trainer that was told no tokenizer, with a collator that keeps none."""
    pad = truetune.collate.PaddingCollator.of(tiny.tokenizer())
    return transformers.Trainer(
        tiny.model(), tiny.arguments(remove_unused_columns=False), pad, rows
    )


def own(rows: Dataset) -> Any:
    tokenizer = tiny.tokenizer()
    collator = transformers.DataCollatorForSeq2Seq(tokenizer)
    return transformers.Trainer(
        tiny.model(), tiny.arguments(), collator, rows, processing_class=tokenizer
    )


def seen(trainer: Any, rows: Rows | None = None) -> dict[str, str]:
    told = trace_canary(trainer, None if rows is None else Dataset.from_list(rows))
    json.dumps(told)
    assert not told["note"]
    return {field["path"]: field["seen"] for field in told["fields"]}


TURNS = ("messages[0].content", "messages[1].content")
LEARNED, READ, CUT, LOST = "supervised", "context", "cut", "lost"
FATES: dict[str, tuple[Any, Rows, dict[str, str]]] = {
    "messages": (sft, tiny.chats(), dict.fromkeys(TURNS, LEARNED)),
    "packing": (lambda rows: sft(rows, packing=True, max_length=64), tiny.chats(), dict.fromkeys(TURNS, LEARNED)),
    "wrapped": (
        lambda rows: sft(rows, packing=True, packing_strategy="wrapped", max_length=64),
        tiny.chats(), dict.fromkeys(TURNS, LEARNED),
    ),
    "padding free": (
        lambda rows: sft(rows, padding_free=True, max_length=None), tiny.chats(), dict.fromkeys(TURNS, LEARNED),
    ),
    "completion": (sft, PROMPTED, {"prompt[0].content": READ, "completion[0].content": LEARNED}),
    "cut": (lambda rows: sft(rows, max_length=30), tiny.chats(), {TURNS[0]: LEARNED, TURNS[1]: CUT}),
    "formatting function ignored": (
        lambda rows: sft(rows, lambda row: "Notes: " + row["notes"]), NOTED,
        {**dict.fromkeys(TURNS, LEARNED), "notes": LOST},
    ),
    "another column": (
        lambda rows: sft(rows, lambda row: row["question"] + "\n" + row["hint"]), ASKED,
        {"question": LEARNED, "answer": LOST, "hint": LEARNED},
    ),
    "pairs": (
        lambda rows: tiny.dpo(rows), tiny.pairs(),
        {"prompt[0].content": READ, "chosen[0].content": LEARNED, "rejected[0].content": LEARNED},
    ),
    "kto": (kto, LABELLED, {"prompt[0].content": READ, "completion[0].content": LEARNED}),
}  # fmt: skip


@pytest.mark.parametrize("name", FATES)
def test_what_becomes_of_each_text(name: str) -> None:
    make, rows, fates = FATES[name]
    assert seen(make(rows), rows) == fates


@pytest.fixture
def followed() -> Iterator[None]:
    """`follow_datasets`, taken back afterwards."""
    methods = {
        name: getattr(Dataset, name)
        for name in REPEATED_METHODS + ROW_CHOOSING_METHODS
        if hasattr(Dataset, name)
    }
    joined, init = datasets.concatenate_datasets, Dataset.__init__
    follow_datasets()
    yield
    Dataset.__init__ = init
    for name, method in methods.items():
        setattr(Dataset, name, method)
    datasets.concatenate_datasets = joined


def encode(row: dict[str, Any]) -> dict[str, Any]:
    """A user's own preparation, with two faults: all after the second turn is dropped, and the question is learned."""
    ids: Any = tiny.tokenizer().apply_chat_template(row["messages"][:2], return_dict=False)
    second = ids.index(ids[0], 1)
    return {"input_ids": ids, "labels": ids[:second] + [-100] * len(ids[second:])}


@pytest.mark.usefixtures("followed")
def test_a_row_is_followed_through_the_users_own_map() -> None:
    rows = Dataset.from_list(tiny.chats(turns=2)).shuffle(seed=1).rename_column("messages", "said")
    rows = (
        rows.rename_column("said", "messages")
        .filter(lambda row: True)
        .train_test_split(test_size=2, seed=0)["train"]
    )
    rows = datasets.concatenate_datasets([rows, rows.select(range(2))])
    fates = seen(own(rows.map(encode, remove_columns=["messages"])))
    assert fates == dict(
        zip((f"messages[{i}].content" for i in range(4)), (LEARNED, READ, LOST, LOST), strict=True)
    )


@pytest.mark.usefixtures("followed")
def test_a_row_is_followed_through_preparation_in_a_constructor() -> None:
    fates = {
        "prompt[0].content": READ,
        "chosen[0].content": LEARNED,
        "rejected[0].content": LEARNED,
    }
    assert seen(orpo(tiny.pairs())) == fates
    assert seen(sft(NOTED, lambda row: row["notes"], packing=True, max_length=64))["notes"] == LOST


@pytest.mark.usefixtures("followed")
def test_a_row_is_followed_into_a_data_set_made_of_anothers_table() -> None:
    class Tokenized(Dataset):
        """As Axolotl's TokenizedPromptDataset."""

        def __init__(self, rows: Dataset) -> None:
            super().__init__(rows.map(encode, remove_columns=["messages"]).data)

    rows = Tokenized(Dataset.from_list(tiny.chats(turns=2)))
    assert seen(own(rows.filter(lambda row: True)))[TURNS[0]] == LEARNED


@pytest.mark.usefixtures("followed")
def test_following_changes_no_row_and_no_random_state() -> None:
    def prepared() -> tuple[Any, ...]:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        rows = Dataset.from_list(tiny.chats(20)).shuffle()
        rows = rows.map(
            lambda row: {"drawn": random.random() + np.random.rand() + torch.rand(1).item()}
        )
        return rows._fingerprint, rows.to_list(), random.getstate(), torch.get_rng_state().tolist()

    mine = prepared()
    methods = {name: getattr(Dataset, name) for name in ("map", "shuffle")}
    for name, method in methods.items():
        setattr(Dataset, name, method.__wrapped__)
    assert mine == prepared()


@pytest.mark.usefixtures("followed")
def test_what_the_users_function_raises_on_the_canary_is_a_note() -> None:
    rows = Dataset.from_list([{"answer": f"{i} apples #### {i}"} for i in range(8)])
    rows = rows.map(
        lambda row: {"input_ids": [5, int(row["answer"].split("####")[1])]},
        remove_columns=["answer"],
    )
    told = trace_canary(own(rows))
    assert told["fields"] == []
    assert "the canary was not taken: ValueError" in told["note"]


@pytest.mark.usefixtures("followed")
def test_texts_beside_ids_are_not_taken_for_lost() -> None:
    rows = [
        {**ids, **chat} for ids, chat in zip(tiny.encoded(tiny.chats()), tiny.chats(), strict=True)
    ]
    for run in (own(Dataset.from_list(rows).select(range(6))), sft(rows)):
        told = trace_canary(
            run, None if isinstance(run.train_dataset, list) else Dataset.from_list(rows)
        )
        assert (told["fields"], bool(told["note"])) == ([], True)


def test_prepared_rows_are_prepared_again_where_none_are_given() -> None:
    assert seen(sft(tiny.chats())) == dict.fromkeys(TURNS, LEARNED)


def test_rows_tokenized_before_are_told() -> None:
    told = trace_canary(own(tiny.encoded(tiny.chats())), Dataset.from_list(tiny.chats()))
    assert "tokenized before the trainer saw them" in told["note"]
    assert trace_canary(None)["note"]


def test_the_run_is_the_same_with_and_without() -> None:
    def losses(*, canary: bool) -> list[Any]:
        torch.manual_seed(0)
        run = tiny.sft(max_steps=3)
        if canary:
            truetune.audit(run, given=Dataset.from_list(tiny.chats()), laws="none", canary=True)
        before = dict(vars(run))
        run.train()
        assert set(before) <= set(vars(run))
        return [line.get("loss") for line in run.state.log_history]

    assert losses(canary=True) == losses(canary=False)


@pytest.mark.parametrize("family", ["gpt2", "mistral-7b-v0.3", "phi3", "smollm2"])
def test_tokenizers_spell_marks_as_they_were(family: str) -> None:
    tokenizer = Tokenizer.from_file(str(parts.folder(family) / "tokenizer.json"))
    spell = LineDecoder(tokenizer)
    for _ in range(50):
        _, (mark,) = add_watermarks({"text": "Who was it?"})
        ids = tokenizer.encode(f"<s>Who was it? {mark.text}</s>\n", add_special_tokens=False).ids
        text, owner = spell(CollatedLine(ids, []))
        assert strip_whitespace_and_case(mark.text) in text
        assert len(owner) == len(text)


def test_marks_keep_what_steers_the_trainer() -> None:
    row = {
        "messages": [{"role": "user", "content": "Hi there", "name": "anna"}, {"role": "assistant", "content": ""}],
        "tools": '[{"name": "look"}]', "score": 3, "number": "17", "label": "good", "long": "a b " * 2000,
    }  # fmt: skip
    made, marks = add_watermarks(row)
    assert [mark.path for mark in marks] == ["messages[0].content", "long"]
    assert [mark.role for mark in marks] == ["user", ""]
    assert made["messages"][0] == {
        "role": "user",
        "content": f"Hi there {marks[0].text}",
        "name": "anna",
    }
    assert made["long"].endswith(marks[1].text)
    assert len(made["long"]) < 700
    assert {key: made[key] for key in ("tools", "score", "number", "label")} == {
        key: row[key] for key in ("tools", "score", "number", "label")
    }
    assert len({mark.text for _ in range(500) for mark in add_watermarks(row)[1]}) == 1000


def test_without_a_tokenizer_the_canary_is_not_read() -> None:
    tokenizer = tiny.tokenizer()
    follow_datasets()

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        ids = tokenizer(row["question"] + row["answer"])["input_ids"]
        return {"input_ids": ids, "labels": ids}

    found = trace_canary(nameless(Dataset.from_list(ASKED).map(encode)))
    assert found["fields"] == []
    assert found["note"].endswith(
        "the trainer has no tokenizer: give it processing_class=tokenizer"
    )

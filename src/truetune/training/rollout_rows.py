"""Rows of a training by rewards: prompts as token ids, and what the reward functions are given of each row.

A prompt is what serving makes of the messages before a row's last answer, made by the same code as the prompts of
`truetune sample`. The answer itself is not trained on; it is the reference that rewards may compare with. The
trade-off: all prompts are made before the first step and held in memory, some hundred bytes for each.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from truetune.data.conversation import Conversation
from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.remote_path import DataPath
from truetune.data.split_lines_into_stretches import FileScan
from truetune.encoding.cache_key import cache_key_of_inputs, collect_key_inputs
from truetune.encoding.encode_data_set import Encoded, Progress
from truetune.errors import DataError
from truetune.generation.answer_samples import Prompt
from truetune.generation.build_prompts import NoPrompt, PromptMaker
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec
from truetune.training.load_encoded_held_out_and_packed_rows import (
    TrainingData,
    TrainingRows,
    choose_held_out_by_hash,
    held_out_rows_with_their_copies,
)
from truetune.training.training_recipe import Choice

NOT_HANDED_ON = ("prompt", "completion", "completion_ids")
"""Columns that TRL hands to no reward function: it has arguments of these names itself"""
ROW_NUMBER = "truetune_row"
"""The column with the number of a row among those that are trained on"""
STAND_IN_ANSWER = "."
"""The answer of a row that has none, while its prompt is made; it is in no prompt and no reference"""
BLOCK_BYTES = 1 << 20
TOO_LONG = "its prompt leaves no room for an answer of training.max_completion_length tokens"


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One prompt that answers are sampled to."""

    prompt: Prompt
    """Its reference is empty where the row has no answer"""
    messages: Any
    """What reward functions are given as its prompt: messages, or a text"""
    columns: Mapping[str, Any]
    """What reward functions are given besides"""


class RolloutRows(TrainingRows):
    """The prompts of a run; each of `packs` is one row of the table, which holds their ids."""

    def __init__(self, rows: list[RolloutRow]) -> None:
        table = datasets.Dataset.from_dict(
            {
                "input_ids": [list(row.prompt.ids) for row in rows],
                "file": [row.prompt.file for row in rows],
                "line": [row.prompt.line for row in rows],
            }
        )
        super().__init__(table, [[number] for number in range(len(rows))])
        self.rows = rows

    def numbered(self) -> datasets.Dataset:
        """A data set of the numbers of the rows alone: what a row holds need not fit into the types of Arrow."""
        return datasets.Dataset.from_dict({ROW_NUMBER: list(range(len(self.rows)))})

    def as_given_to_rewards(self, number: int) -> dict[str, Any]:
        """A row as TRL's trainer takes it: its prompt, and the columns for the reward functions."""
        row = self.rows[number]
        return {**row.columns, "prompt": row.messages, ROW_NUMBER: number}


def load_rollout_data(spec: RunSpec, *, progress: Progress | None = None) -> TrainingData:
    """Make the prompts of `data`, and hold some out. Raises DataError where none is left to train on.

    `spec` is a recipe's: max_length and training.max_completion_length are set.
    """
    # The limit is on a prompt with the answer that is sampled, and not with the reference.
    probes = load_tokenizer_and_template_of_run(spec.model_copy(update={"max_length": None}))
    limit = (spec.max_length or 0) - (spec.training.max_completion_length or 0)
    skipped: Counter[str] = Counter()
    rows = list(_make_rows(spec, PromptMaker(probes), limit, skipped, progress))
    if not rows:
        reason = next(iter(skipped), "the data holds no row")
        raise DataError(f"{', '.join(spec.data)}: no prompt is left to sample answers to: {reason}")
    held = _held_out_rows(spec, rows)
    train = [row for row in rows if row.prompt.row not in held]
    tokens = sum(len(row.prompt.ids) for row in train)
    counts = {
        "rows": len(rows) + skipped.total(),
        "encoded": len(rows),
        "dropped": skipped[TOO_LONG],
        "rejected": skipped.total() - skipped[TOO_LONG],
    }
    return TrainingData(
        RolloutRows(train),
        None,
        _describe_prompts(spec, probes, counts),
        len(train),
        tokens,
        held,
        tuple(_choices_of_rollout_rows(spec, rows, held, skipped)),
    )


def _make_rows(
    spec: RunSpec,
    maker: PromptMaker,
    limit: int,
    skipped: Counter[str],
    progress: Progress | None,
) -> Iterator[RolloutRow]:
    """The rows that have a prompt of at most `limit` tokens; the reasons of the others go to `skipped`."""

    def read(rows: int, done: int, total: int) -> None:
        if progress is not None:
            progress("reading", done, total, rows, 0)

    source = read_conversations(spec.data, format=spec.format, columns=spec.map, progress=read)
    for row in source:
        try:
            rollout_row = _make_row(row, maker)
        except NoPrompt as error:
            skipped[str(error)] += 1
            continue
        if len(rollout_row.prompt.ids) > limit:
            skipped[TOO_LONG] += 1
            continue
        yield rollout_row


def _make_row(row: Conversation, maker: PromptMaker) -> RolloutRow:
    """One row. Raises NoPrompt."""
    if row.text is not None:
        raise NoPrompt("it is a text without a question")
    has_answer = not row.is_chat or row.messages[-1].get("role") == "assistant"
    if has_answer:
        prompt = maker.make(row)
    else:
        answer = {"role": "assistant", "content": STAND_IN_ANSWER}
        prompt = maker.make(replace(row, messages=[*row.messages, answer]))
        prompt = replace(prompt, reference="", reference_ids=())
    messages = prompt.question if prompt.chat is None else list(map(dict, prompt.chat.messages))
    raw = row.raw or {}
    columns = {name: value for name, value in raw.items() if name not in NOT_HANDED_ON}
    return RolloutRow(prompt, messages, columns)


def _held_out_rows(spec: RunSpec, rows: list[RolloutRow]) -> frozenset[int]:
    """The rows that are held out, with those that have the same prompt."""
    numbers = np.array([row.prompt.row for row in rows])
    chosen = choose_held_out_by_hash(numbers, 0 if spec.eval_data else spec.training.val_size)
    texts = (np.array(row.prompt.ids).tobytes() for row in rows)
    return held_out_rows_with_their_copies(texts, numbers, chosen)


def _describe_prompts(spec: RunSpec, probes: Probes, counts: dict[str, int]) -> Encoded:
    """What the record of a run says of its data. Nothing is written to the cache: the folder is none."""
    sources = find_data_files_of_paths(spec.data)
    scans = [FileScan(_digest_of_file(source.path), ()) for source in sources]
    inputs = collect_key_inputs(spec, probes, sources, scans)
    manifest = {
        "key": cache_key_of_inputs(inputs),
        "inputs": inputs,
        "counts": counts,
        "ledger": {},
        "notices": [],
    }
    return Encoded(Path(), manifest, reused=False, notices=(), seconds=0.0)


def _digest_of_file(path: DataPath) -> str:
    """The digest of a file's bytes, here or in an object store, as `truetune encode` makes it."""
    digest = hashlib.blake2b(digest_size=20)
    with open_raw(path) as raw:
        while block := raw.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _choices_of_rollout_rows(
    spec: RunSpec, rows: list[RolloutRow], held: frozenset[int], skipped: Counter[str]
) -> Iterator[Choice]:
    """What was chosen for the user of these rows: which are left out, and which held out."""
    for reason, count in skipped.most_common():
        yield Choice("data", f"{count:,} rows left out", reason)
    unanswered = sum(not row.prompt.reference for row in rows)
    if unanswered:
        yield Choice("data", f"{unanswered:,} rows without an answer", "no reference for rewards")
    if held and spec.training.val_size is None:
        yield Choice(
            "training.val_size", len(held), "rows held out, to be answered; 0 trains on all"
        )

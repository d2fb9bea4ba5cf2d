"""Rows of a preference run: pairs of answers, or answers with a verdict, as token ids of prompt and
answer.

Each answer is a document of the encoded table, with its prompt; a row names one or two documents. The rows of KTO are
put in an order in which no neighbours share a prompt, because its trainer takes a neighbour's answer for one to another
question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as arrow
from numpy.typing import NDArray

from truetune.encoding.encode_data_set import Progress, encode
from truetune.errors import DataError
from truetune.render.rendering import IGNORED
from truetune.settings.run_spec import RunSpec
from truetune.training.load_encoded_held_out_and_packed_rows import (
    TrainingData,
    TrainingRows,
    choices_of_encoded_and_held_rows,
    choose_held_out_by_hash,
    held_out_rows_with_their_copies,
    open_nonempty_encoded_table,
)
from truetune.training.training_recipe import DEFAULT_SEED, Choice

# Chosen: twice the 16 rows of a default step, so that no two answers to one prompt meet in a batch.
# More would matter for larger batches only, and is seldom to be had.
MIN_ROWS_APART = 32
"""Verdicts in succession that have different prompts and answers, where the data has enough such rows: KTO takes the
answers of a row's neighbours in the batch for answers to other questions"""
# Chosen, not measured: bounds the search where the data has few prompts. Twice as many cost time
# linearly.
ROWS_SEARCHED = 64
"""Rows among which one that fits is looked for"""


class PreferenceRows(TrainingRows):
    """Pairs or verdicts: each of `packs` is two documents of the table, or one."""

    def __getitem__(self, number: int) -> dict[str, Any]:
        """prompt_ids, and chosen_ids and rejected_ids, or completion_ids and label."""
        documents = [self.table[i] for i in self.packs[number]]
        (prompt, answer), *others = map(_split_prompt_and_answer, documents)
        if others:
            return {"prompt_ids": prompt, "chosen_ids": answer, "rejected_ids": others[0][1]}
        return {
            "prompt_ids": prompt,
            "completion_ids": answer,
            "label": bool(documents[0]["label"]),
        }

    def as_dataset(self) -> datasets.Dataset:
        """All rows as a dataset in memory: 4 bytes a token, so that 10^5 pairs of 600 tokens take
        240 MB.
        """
        # Part 2i of the flat list is the prompt of document i, part 2i + 1 its answer.
        documents = np.array(self.packs)
        # Arrow's take on offsets, and no lists: no token becomes a Python object.
        parts = _FlatDocuments.of_table(self.table).prompts_and_answers()
        columns = {"prompt_ids": parts.take(arrow.array(2 * documents[:, 0]))}
        answers = [parts.take(arrow.array(2 * side + 1)) for side in documents.T]
        if len(answers) == 2:
            columns |= {"chosen_ids": answers[0], "rejected_ids": answers[1]}
        else:
            labels = self.table.data.table["label"].combine_chunks()
            columns |= {
                "completion_ids": answers[0],
                "label": labels.take(arrow.array(documents[:, 0])),
            }
        return datasets.Dataset(arrow.table(columns))

    def choose_kl_rows(self, batch: int, limit: int) -> NDArray[np.int64]:
        """(rows,) for each row the one whose answer KTO's KL term takes as an answer to another
        question.
        """
        flat, documents = _FlatDocuments.of_table(self.table), np.array(self.packs)[:, 0]
        prompts, answers = flat.starts - flat.offsets[:-1], flat.offsets[1:] - flat.starts
        return choose_kl_answer_rows(prompts[documents], answers[documents], batch, limit)


def load_preference_data(spec: RunSpec, *, progress: Progress | None = None) -> TrainingData:
    """Encode `data` (and `eval_data`) through the cache. Raises DataError where nothing is left to train on.

    `spec` is a recipe's: max_length is set. KTO takes each side of a pair as a verdict.
    """
    settings = {"packing": "none", "preferences": True, "sources": True, "trainer": "transformers"}
    spec = spec.model_copy(update={"encode": spec.encode.model_copy(update=settings)})
    encoded = encode(spec, progress=progress)
    table = open_nonempty_encoded_table(encoded, spec.data)
    numbers = np.asarray(table.with_format("numpy")["row"])
    flat = _FlatDocuments.of_table(table)
    chosen = choose_held_out_by_hash(numbers, 0 if spec.eval_data else spec.training.val_size)
    held = held_out_rows_with_their_copies(
        (flat.prompt_and_answer_bytes(i)[0] for i in range(len(numbers))), numbers, chosen
    )
    apart = np.isin(numbers, sorted(held))
    train = _pair_documents_or_order_verdicts(table, np.flatnonzero(~apart), spec)
    held_out = (
        _pair_documents_or_order_verdicts(table, np.flatnonzero(apart), spec) if held else None
    )
    if spec.eval_data:
        other = open_nonempty_encoded_table(
            encode(spec.model_copy(update={"data": spec.eval_data})), spec.eval_data
        )
        held_out = _pair_documents_or_order_verdicts(other, np.arange(len(other)), spec)
    tokens = int(np.diff(flat.offsets)[~apart].sum())
    choices = (
        *choices_of_encoded_and_held_rows(spec, held, encoded.manifest),
        *_choices_of_preference_rows(spec, train),
    )
    return TrainingData(train, held_out, encoded, int((~apart).sum()), tokens, held, choices)


def choose_kl_answer_rows(
    prompts: NDArray[np.int64], answers: NDArray[np.int64], batch: int, limit: int
) -> NDArray[np.int64]:
    """For each row the one whose answer stands for an answer to another question (KTO's KL term).

    Of the rows of a batch it is the one before, or where that would be too long behind the prompt, the next one before
    it that is not.

    Args:
        prompts: (rows,) lengths in tokens.
        answers: (rows,) lengths in tokens.
        batch: rows of a batch, which are neighbours in this order.
        limit: tokens of prompt and answer together.

    Returns:
        (rows,) numbers of rows.
    """
    count = len(prompts)
    places = np.arange(count)
    # The batch of each row, as a sequential sampler makes it; the last batch may be short.
    first, last = places // batch * batch, np.minimum(places // batch * batch + batch, count) - 1
    # As KTO's paper pairs them: each answer goes to the next prompt of the batch, and the last to
    # the first.
    neighbour = np.where(places == first, last, places - 1)
    # A batch of one row takes the row before it, from the batch before.
    neighbour = np.where(neighbour == places, np.maximum(places - 1, 0), neighbour)
    for i in np.flatnonzero(prompts + answers[neighbour] > limit).tolist():
        others = [*range(i - 1, first[i] - 1, -1), *range(last[i], i, -1)]
        neighbour[i] = next((k for k in others if prompts[i] + answers[k] <= limit), neighbour[i])
    return neighbour


class _FlatDocuments(NamedTuple):
    """The documents of a table laid end to end."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    """(documents,) where in `ids` each answer begins"""

    @classmethod
    def of_table(cls, table: Any) -> _FlatDocuments:
        """Read a table's documents at once, from its Arrow columns."""
        columns = [table.data.table[name].combine_chunks() for name in ("input_ids", "labels")]
        ids, labels = (np.asarray(column.flatten()) for column in columns)
        offsets = np.concatenate(([0], np.cumsum(np.asarray(columns[0].value_lengths()))))
        # The first supervised token of a document is where its answer begins: found for all at
        # once, as labels are ignored in prompts alone.
        learned = np.flatnonzero(labels != IGNORED)
        return cls(ids, offsets, learned[np.searchsorted(learned, offsets[:-1])])

    def prompts_and_answers(self) -> Any:
        """An Arrow array of lists: prompt and answer of each document in turn."""
        borders = np.append(
            np.stack((self.offsets[:-1], self.starts), axis=1).ravel(), self.offsets[-1]
        )
        return arrow.ListArray.from_arrays(
            arrow.array(borders, arrow.int32()), arrow.array(self.ids)
        )

    def prompt_and_answer_bytes(self, document: int) -> tuple[bytes, bytes]:
        """The ids of a document's prompt and of its answer as bytes, to compare."""
        start, middle, stop = (
            self.offsets[document],
            self.starts[document],
            self.offsets[document + 1],
        )
        return self.ids[start:middle].tobytes(), self.ids[middle:stop].tobytes()


def _split_prompt_and_answer(document: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The ids of a document's prompt and of its answer."""
    ids = document["input_ids"].tolist()
    start = int(np.flatnonzero(document["labels"] != IGNORED)[0])
    return ids[:start], ids[start:]


def _pair_documents_or_order_verdicts(
    table: Any, places: NDArray[np.int64], spec: RunSpec
) -> PreferenceRows:
    """Pair the documents of each row, or arrange verdicts. Raises DataError for an answer without its other."""
    if spec.training.method == "kto":
        seed = int(spec.trainer.get("seed", DEFAULT_SEED))
        return PreferenceRows(
            table, [[i] for i in _shuffled_order_with_verdicts_spread(table, places, seed)]
        )
    numbers = np.asarray(table.with_format("numpy")["row"])
    # The encoder writes the two sides of a pair one after the other, with the number of their row.
    first = places[np.flatnonzero(np.diff(numbers[places], prepend=-1))]
    if 2 * len(first) != len(places):
        alone = next(
            i for i in first.tolist() if i + 1 == len(numbers) or numbers[i + 1] != numbers[i]
        )
        where = f"{table[alone]['file']}:{table[alone]['line']}"
        raise DataError(
            f"{where}: an answer with a verdict; {spec.training.method} compares two answers, "
            "use training.method: kto"
        )
    return PreferenceRows(table, [[i, i + 1] for i in first.tolist()])


def _shuffled_order_with_verdicts_spread(
    table: Any, places: NDArray[np.int64], seed: int
) -> list[int]:
    """The order in which verdicts are trained: shuffled, with wanted and unwanted answers evenly
    spread.
    """
    random = np.random.default_rng(seed)
    labels = np.asarray(table.with_format("numpy")["label"])[places]
    keys = np.zeros(len(places))
    for label in (True, False):
        of_label = random.permutation(np.flatnonzero(labels == label))
        keys[of_label] = (np.arange(len(of_label)) + random.random()) / max(len(of_label), 1)
    flat = _FlatDocuments.of_table(table)
    waiting = iter(places[np.argsort(keys, kind="stable")].tolist())
    head = [(i, flat.prompt_and_answer_bytes(i)) for i in islice(waiting, ROWS_SEARCHED)]
    recent: deque[tuple[bytes, bytes]] = deque(maxlen=MIN_ROWS_APART - 1)
    order = []
    while head:
        prompts, answers = map(set, zip(*recent, strict=True)) if recent else (set(), set())
        fitting = (k for k, (_, (p, a)) in enumerate(head) if p not in prompts and a not in answers)
        i, halves = head.pop(next(fitting, 0))
        order.append(i)
        recent.append(halves)
        head += [(i, flat.prompt_and_answer_bytes(i)) for i in islice(waiting, 1)]
    return order


def _choices_of_preference_rows(spec: RunSpec, train: PreferenceRows) -> Iterator[Choice]:
    """What was chosen for the user of this method's rows."""
    training = spec.training
    if (
        training.lora is not None
        and training.lora.lora_dropout
        and training.disable_dropout is not False
    ):
        yield Choice(
            "training.lora.lora_dropout",
            0.0,
            "answers are compared without dropout; disable_dropout: false keeps it",
        )
    if training.method == "kto":
        yield Choice(
            "order of the rows",
            "shuffled once",
            "KTO takes the answer of a row's neighbour for one to "
            "another question, so each epoch has the same order",
        )

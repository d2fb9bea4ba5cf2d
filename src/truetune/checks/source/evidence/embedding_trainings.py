"""Finds the trainings of embedding models and rerankers in a script, with the rows that they get.

How it works: the script is followed with its rows in hand (`ConcreteRun`). A training is a trainer of
sentence-transformers with its data set and its loss, or `fit` with a loader of `InputExample`s. Its columns are in
the order in which the loss takes them.

The trade-off: rows of a hub, and rows that code shapes in a way that is not followed, are not known. Then a
training has no rows, and only its settings can be judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from truetune.checks.source.evidence.losses_of_embedding_models import (
    EMBEDDING_LOSSES,
    RERANKER_LOSSES,
    WRAPPING_LOSSES,
    LossFacts,
)
from truetune.data.script_rows.compute_dataset_methods_on_known_rows import Place, Row, Table
from truetune.data.script_rows.row_files_of_script import RowFiles
from truetune.data.script_rows.symbolic_run_with_rows import ConcreteRun
from truetune.source.data_flow import DataFlow
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import LOADERS
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import LimitReached
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Result,
    Sequence,
    Value,
)
from truetune.source.symbolic_execution.values_of_run import Mapping as MappingValue

TRAINERS = ("sentence_transformers.*Trainer",)
MODELS = (
    "sentence_transformers.SentenceTransformer",
    "sentence_transformers.*.SentenceTransformer",
    "sentence_transformers.CrossEncoder",
    "sentence_transformers.*.CrossEncoder",
)
ARGUMENTS = ("sentence_transformers.*TrainingArguments",)
EXAMPLES = ("sentence_transformers.*InputExample",)
LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""What sentence-transformers takes as the label, by name; every other column is a text, by its order"""
NOT_A_TEXT = "dataset_name"


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """One row as the loss gets it."""

    texts: tuple[Any, ...]
    """In the order of the columns; what is no text is as it is"""
    label: Any
    """None without one"""
    place: Place | None


@dataclass(frozen=True, slots=True)
class EmbeddingTraining:
    """A training of an embedding model or a reranker."""

    call: CallEvent
    """The trainer that is made, or the call of `fit`"""
    loss_call: CallEvent
    loss: str
    facts: LossFacts
    columns: tuple[str, ...]
    """Names of the texts' columns in their order; empty for InputExample, which has none"""
    rows: tuple[TrainedRow, ...]
    """Empty where they are not known"""
    arguments: CallEvent | None
    """The call that makes the training's arguments; None where it is not seen"""
    model: CallEvent | None
    """The call that loads the model"""
    loader: CallEvent | None = None
    """Of `fit`: the loader of its rows"""

    @property
    def labels(self) -> list[float]:
        """The labels that are numbers, in the order of the rows."""
        numbers = (number_of_label(row.label) for row in self.rows)
        return [number for number in numbers if number is not None]

    @property
    def model_name(self) -> str:
        """The name or folder of the model; empty where it is not known."""
        name = (
            None
            if self.model is None
            else constant_of(self.model.argument(0, "model_name_or_path"))
        )
        return name if isinstance(name, str) else ""

    def setting(self, name: str) -> Any:
        """The plain value of one of the training's arguments; None where it is not given, NO_CONSTANT if not known."""
        if self.arguments is None:
            return NO_CONSTANT
        given = self.arguments.result.attributes.get(name) or self.arguments.keywords.get(name)
        if given is None:
            return NO_CONSTANT if self.arguments.is_open else None
        return constant_of(given)


_TRAININGS: WeakKeyDictionary[DataFlow, dict[str, tuple[EmbeddingTraining, ...]]] = (
    WeakKeyDictionary()
)
"""Data flow of a group of files -> path of the script -> its trainings"""


def embedding_trainings(module: Module) -> tuple[EmbeddingTraining, ...]:
    """The trainings of embedding models and rerankers that a file starts, each place once."""
    if not any(_calls_that_may_train(module)):
        return ()
    kept = _TRAININGS.setdefault(module.flow, {})
    if module.path not in kept:
        trace = _trace_with_rows(module)
        found = {one.call.node: one for one in _trainings_of_trace(trace)}
        kept[module.path] = tuple(
            one for one in found.values() if one.call.home.path == module.path
        )
    return kept[module.path]


def places_that_train_embeddings(module: Module) -> Iterator[object]:
    """The calls of a file that train an embedding model or a reranker."""
    yield from _calls_that_may_train(module)


def _calls_that_may_train(module: Module) -> Iterator[object]:
    """The trainers of sentence-transformers that a file makes, and its calls of `fit` with objectives."""
    yield from module.calls(*TRAINERS)
    if any(module.calls(*MODELS)):
        yield from module.methods("fit")


def _trace_with_rows(module: Module) -> Trace:
    """What a script does with its rows; as far as it was followed."""
    own = Path(module.path).resolve().parent
    run = ConcreteRun(module, RowFiles((own, Path.cwd())))
    try:
        run.run()
    except (LimitReached, RecursionError):
        # What was made up to there is known.
        run.trace.is_whole = False
    return run.trace


def _trainings_of_trace(trace: Trace) -> Iterator[EmbeddingTraining]:
    """The trainings of a trace whose loss is known."""
    for call in trace.calls(*TRAINERS):
        rows = call.argument(2, "train_dataset")
        for name, loss in _named_losses(call.argument(4, "loss")):
            part = rows.entries.get(name) if isinstance(rows, MappingValue) and name else rows
            yield from _training_by_trainer(call, part, loss)
    for call in trace.methods("fit"):
        yield from _trainings_by_fit(call)
        yield from _training_by_fit_of_reranker(call)


def _named_losses(loss: Value | None) -> Iterator[tuple[str, Value]]:
    """The losses of a trainer: one without a name, or several by the names of their data sets."""
    if isinstance(loss, MappingValue):
        yield from ((str(name), one) for name, one in loss.entries.items())
    elif loss is not None:
        yield "", loss


def _training_by_trainer(
    call: CallEvent, rows: Value | None, loss: Value
) -> Iterator[EmbeddingTraining]:
    """The training of one trainer's data set; none where the loss is not known."""
    made = _known_loss(loss)
    if made is None:
        return
    loss_call, name, facts = made
    columns, known = _columns_and_rows(rows)
    args = call.argument(1, "args")
    arguments = args.call if isinstance(args, Result) and args.call.named(*ARGUMENTS) else None
    model = _load_of_model(call.argument(0, "model"))
    yield EmbeddingTraining(call, loss_call, name, facts, columns, known, arguments, model)


def _known_loss(loss: Value) -> tuple[CallEvent, str, LossFacts] | None:
    """The call that makes a loss, its name and what it reads; of a loss around another, of that."""
    if not isinstance(loss, Result):
        return None
    call = loss.call
    name = next((one.rpartition(".")[2] for one in call.names if ".losses." in one), "")
    if name in WRAPPING_LOSSES:
        inner = call.argument(1, "loss")
        return None if inner is None else _known_loss(inner)
    is_reranker = any("cross_encoder" in one for one in call.names)
    facts = (RERANKER_LOSSES if is_reranker else EMBEDDING_LOSSES).get(name)
    return None if facts is None else (call, name, facts)


def _load_of_model(model: Value | None) -> CallEvent | None:
    """The call that loads a model; None where it is not seen."""
    is_load = isinstance(model, Result) and model.call.named(*MODELS)
    return model.call if is_load and isinstance(model, Result) else None


def _columns_and_rows(rows: Value | None) -> tuple[tuple[str, ...], tuple[TrainedRow, ...]]:
    """The names of the texts' columns, and the rows; empty where they are not known."""
    if not isinstance(rows, Table) or rows.is_open or not rows.rows:
        return (), ()
    texts, label = _texts_and_label_of_row(rows.rows[0])
    made = [_row_of_table(row, texts, label) for row in rows.rows]
    known = tuple(row for row in made if row is not None)
    return (texts, known) if len(known) == len(made) else ((), ())


def _texts_and_label_of_row(row: Row) -> tuple[tuple[str, ...], str | None]:
    """The columns that are taken as texts, in their order, and the one that is the label."""
    names = [str(name) for name in row.entries]
    label = next((name for name in LABEL_COLUMNS if name in names), None)
    return texts_among_columns(names), label


def texts_among_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The columns that are taken as texts, in their order: all but the label and the name of the data set."""
    columns = [name for name in names if name != NOT_A_TEXT]
    label = next((name for name in LABEL_COLUMNS if name in columns), None)
    return tuple(name for name in columns if name != label)


def _row_of_table(row: Row, texts: tuple[str, ...], label: str | None) -> TrainedRow | None:
    """A row as the loss gets it; None where a part of it is not known."""
    values = tuple(constant_of(row.entries.get(name)) for name in texts)
    mark = None if label is None else constant_of(row.entries.get(label))
    if row.is_open or mark is NO_CONSTANT or any(value is NO_CONSTANT for value in values):
        return None
    return TrainedRow(values, mark, row.place)


def _trainings_by_fit(call: CallEvent) -> Iterator[EmbeddingTraining]:
    """The trainings that `fit` is given as pairs of a loader and a loss."""
    objectives = call.argument(0, "train_objectives")
    for pair in objectives.items if isinstance(objectives, Sequence) else ():
        if not isinstance(pair, Sequence) or len(pair.items) != 2:
            continue
        loader, loss = pair.items
        made = _known_loss(loss)
        if made is None or not isinstance(loader, Result):
            continue
        loss_call, name, facts = made
        rows = _rows_of_examples(loader.call.argument(0, "dataset"))
        model = _load_of_model(call.receiver)
        yield EmbeddingTraining(
            call, loss_call, name, facts, (), rows, None, model, _loader_of_torch(loader.call)
        )


def _training_by_fit_of_reranker(call: CallEvent) -> Iterator[EmbeddingTraining]:
    """The training of a reranker with one score by `fit`, whose loss is a binary cross-entropy by default."""
    model = _load_of_model(call.receiver)
    loader = call.argument(0, "train_dataloader")
    if model is None or not isinstance(loader, Result) or "loss_fct" in call.keywords:
        return
    scores = model.argument(1, "num_labels")
    if scores is None or constant_of(scores) != 1 or model.named("*SentenceTransformer"):
        return
    rows = _rows_of_examples(loader.call.argument(0, "dataset"))
    name = "BinaryCrossEntropyLoss"
    facts = RERANKER_LOSSES[name]
    yield EmbeddingTraining(
        call, call, name, facts, (), rows, None, model, _loader_of_torch(loader.call)
    )


def _loader_of_torch(call: CallEvent) -> CallEvent | None:
    """The loader, if it is torch's own: those of sentence-transformers keep equal texts apart."""
    return call if call.named(*LOADERS) else None


def _rows_of_examples(examples: Value | None) -> tuple[TrainedRow, ...]:
    """The rows of a list of InputExample; empty where they are not known."""
    if not isinstance(examples, Sequence) or examples.is_open:
        return ()
    rows = [_row_of_example(one) for one in examples.items]
    known = tuple(row for row in rows if row is not None)
    return known if len(known) == len(rows) else ()


def _row_of_example(example: Value) -> TrainedRow | None:
    """The row of one InputExample; None where it is not known."""
    if not isinstance(example, Result) or not example.call.named(*EXAMPLES):
        return None
    texts = constant_of(example.call.argument(1, "texts"))
    given = example.call.argument(2, "label")
    label = 0 if given is None else constant_of(given)
    if not isinstance(texts, list | tuple) or label is NO_CONSTANT:
        return None
    return TrainedRow(tuple(texts), label, None)


def number_of_label(label: Any) -> float | None:
    """A label as a number, also where it is the cell of a CSV file, which readers make a number of; None otherwise."""
    if isinstance(label, int | float):
        return float(label)
    if not isinstance(label, str):
        return None
    try:
        return float(label)
    except ValueError:
        return None


def describe_row(row: TrainedRow, columns: tuple[str, ...]) -> str:
    """A row for a finding: its first texts with the names of their columns."""
    names = columns or tuple(f"text {number}" for number in range(1, len(row.texts) + 1))
    parts = [f"{name} {_short(text)}" for name, text in zip(names, row.texts, strict=False)]
    label = "" if row.label is None else f", label {row.label!r}"
    return ", ".join(parts[:3]) + label


def _short(text: object) -> str:
    """The beginning of a text."""
    plain = repr(text)
    return plain if len(plain) <= 40 else f"{plain[:36]} ...'"

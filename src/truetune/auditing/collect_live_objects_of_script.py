"""Live objects of a script, taken down without a trace: tokenizer, collator, template, model, rows.

The tokenizer is saved into a folder of ours, for its facts are read from files. The collator is called on rows of the
user, or where those are chats that it can't take, on rows that are made of them: it gets the first form that it does
not refuse. Everything that this touches is put back: attributes, random states, the padding and truncation that the
tokenizer's backend remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.auditing.list_row_texts_with_sources import parse_row
from truetune.data.conversation import Conversation
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.errors import DataError, UsageError
from truetune.probe.run_record import Record
from truetune.render.rendering import IGNORED
from truetune.render.template_probes import Probes, alternating_chat
from truetune.render.tokenizer import Tokenizer, load_tokenizer

# Measured as said below; more rows would show rarer faults and make a check in a notebook slow.
MAX_ROWS = 256
"""Rows of the user that are read: rendering and encoding them takes well under a second"""
MAX_BATCHED = 32
"""Of those, rows that the collator gets, in batches of so many:"""
BATCH_SIZE = 4
SAMPLE_ANSWERS = (
    "On the northern cliff.",
    "It stands on the northern cliff, above the old harbour, and its lamp is lit at dusk.",
    "North.",
    "Nobody in the village knows.",
)
"""Of unlike length, so that a batch of them is padded"""
SAMPLE_QUESTIONS = (
    "Where is the lighthouse?",
    "Where was the lamp made?",
    "Which way is it?",
    "Who built the lighthouse?",
)


class RowForm(NamedTuple):
    """One way to write a chat as a row for a collator."""

    name: str
    keys: tuple[str, ...]


ROW_FORMS = (
    RowForm("ids with labels", ("input_ids", "attention_mask", "labels")),
    RowForm("ids", ("input_ids", "attention_mask")),
    RowForm("ids of a preference pair", ("prompt_ids", "chosen_ids", "rejected_ids")),
    RowForm("messages", ("messages",)),
    RowForm("text", ("text",)),
)
"""The first that a collator does not refuse is taken: one with labels says most"""


@dataclass(frozen=True)
class LiveObjects:
    """What a script has in hand."""

    tokenizer: Any
    """Of transformers, or a processor that holds one"""
    collator: Any = None
    template: str | None = None
    """A chat template as text, a file, or the name of one that the tokenizer has"""
    model: Any = None
    rows: Any = None
    """What the collator is given, or chats before any preparation"""

    @property
    def objects_with_state_to_restore(self) -> list[Any]:
        """Objects whose state is kept, as they hang together."""
        inner = getattr(self.tokenizer, "tokenizer", None)
        collator_tokenizer = getattr(self.collator, "tokenizer", None)
        return [
            part
            for part in (self.tokenizer, inner, self.collator, collator_tokenizer, self.rows)
            if part is not None
        ]


@dataclass(frozen=True)
class CollatedRows:
    """What a collator made of rows."""

    record: Record
    rows: Sequence[Any]
    """What the collator was given"""
    made_of: str = ""
    """The form of rows that were made for it; empty where they are the user's own"""


@contextmanager
def preserve_objects(live: LiveObjects) -> Iterator[None]:
    """Put back what looking at the objects changes."""
    from truetune.probe.restore_state_changed_by_observing_run import preserve_state

    # A collator may call the model, and eval() on the way would silence dropout in the training.
    modes = _training_modes(live.model)
    with (
        _preserve_tokenizer_padding_and_truncation(live),
        preserve_state(*live.objects_with_state_to_restore),
    ):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def read_live_tokenizer(live: LiveObjects, folder: Path) -> Tokenizer:
    """The facts of the tokenizer in memory, with those of the model in memory. Raises TokenizerError, UsageError."""
    from truetune.probe.record_run_ready_to_train import model_facts, save_tokenizer, unwrap_model

    if save_tokenizer(live.tokenizer, folder) is None:
        kind = type(live.tokenizer).__name__
        raise UsageError(
            f"expected a tokenizer of transformers or a processor that holds one, found {kind}"
        )
    # Saved files hold how the last call happened to pad and cut, which is no setting of the user's.
    tokenizer = replace(load_tokenizer(str(folder / "tokenizer")), truncation=None, padding=None)
    if live.model is None:
        return tokenizer
    facts = model_facts(unwrap_model(live.model))
    # The model in memory counts, not its file: a resize happens in memory.
    rows = facts["embedding_rows"]
    return replace(
        tokenizer,
        model_config=facts["config"],
        generation_config=facts["generation_config"],
        embedding_rows=tokenizer.embedding_rows if rows is None else rows,
    )


def read_live_template(live: LiveObjects, folder: Path) -> str | None:
    """The template as settings name it: text is written into a file of ours; None for the tokenizer's own."""
    # What has Jinja's braces is a template itself; everything else names a file or one of the tokenizer's.
    text = live.template or _processor_template(live.tokenizer)
    if text is None or not ("{{" in text or "{%" in text):
        return text
    path = folder / "template.jinja"
    path.write_text(text, encoding="utf-8")
    return str(path)


def read_live_rows(live: LiveObjects) -> list[Mapping[str, Any]]:
    """The first rows that the user gave. Raises DataError where they can't be taken without using them up."""
    rows = live.rows
    if rows is None:
        return []
    # What we take from an iterator, the training would miss.
    if isinstance(rows, Iterator):
        raise DataError(
            "rows: it is an iterator, whose rows would be gone afterwards; give a list or a"
            " data set"
        )
    if hasattr(rows, "__len__") and hasattr(rows, "__getitem__") and not isinstance(rows, Mapping):
        first_rows = [rows[number] for number in range(min(len(rows), MAX_ROWS))]
    else:
        first_rows = list(islice(iter(rows), MAX_ROWS))
    odd = next((row for row in first_rows if not isinstance(row, Mapping)), None)
    if odd is not None:
        raise DataError(f"rows: expected dictionaries, found {type(odd).__name__}")
    return first_rows


def parse_conversations(rows: Sequence[Mapping[str, Any]]) -> list[Conversation]:
    """The rows that are chats, prompts with answers or texts; rows of ids are none."""
    parsed = (parse_row(row, number) for number, row in enumerate(rows) if "input_ids" not in row)
    return [conversation for conversation in parsed if conversation is not None]


def make_small_sample_chats(probes: Probes) -> list[dict[str, Any]]:
    """Small chats of unlike length; none where the template writes no chat."""
    if probes.terminator is None:
        return []
    return [
        {"messages": alternating_chat(question, answer)}
        for question, answer in zip(SAMPLE_QUESTIONS, SAMPLE_ANSWERS, strict=True)
    ]


def collate_rows(
    live: LiveObjects, folder: Path, probes: Probes, rows: Sequence[Mapping[str, Any]]
) -> CollatedRows:
    """What the collator makes: of the user's rows, of forms made of them, or of small chats where there are none.

    Raises UsageError where it takes none of these.
    """
    reasons: list[str] = []
    for given_rows in _rows_as_they_are_and_without_text_columns(rows[:MAX_BATCHED]):
        try:
            return CollatedRows(
                _record_collation_of_rows(live, folder, given_rows, given_rows), given_rows
            )
        except Exception as error:  # the user's collator may raise anything
            reasons.append(_describe_collator_failure("the rows", error))
    texts = [row for row in rows if "input_ids" not in row][:MAX_BATCHED] or (
        make_small_sample_chats(probes) if not rows else []
    )
    for form, form_rows in _make_row_forms(texts, probes):
        try:
            return CollatedRows(
                _record_collation_of_rows(live, folder, form_rows, texts), form_rows, form.name
            )
        except Exception as error:
            reasons.append(_describe_collator_failure(form.name, error))
    why = reasons[0] if reasons else "there is no row that it could be given"
    hint = "" if rows else "; give some of yours: rows=dataset"
    raise UsageError(f"it took none of {len(reasons)} kinds of rows: {why}{hint}")


def record_model_without_batches(live: LiveObjects, folder: Path) -> Record:
    """A record without batches, for what is known of the model and tokenizer alone."""
    return _record_collation_of_rows(live, folder, [], [])


def _describe_collator_failure(what: str, error: Exception) -> str:
    """What a collator raised for some rows, in one line: the rows, the error's type and its text."""
    return f"of {what} it made {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _rows_as_they_are_and_without_text_columns(
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[list[Mapping[str, Any]]]:
    """The rows, and without their columns of texts: a Trainer takes those away before it calls the collator."""
    if not rows:
        return
    # As they are first: who calls the collator by hand gives it all columns.
    yield list(rows)
    numeric = [
        {key: value for key, value in row.items() if _is_column_kept_by_trainer(value)}
        for row in rows
    ]
    if any(len(few) < len(row) for few, row in zip(numeric, rows, strict=True)) and all(
        "input_ids" in r for r in numeric
    ):
        yield list[Mapping[str, Any]](numeric)


def _is_column_kept_by_trainer(value: Any) -> bool:
    """Is a column one that a Trainer keeps: numbers, lists of numbers, arrays, tensors?"""
    if isinstance(value, list | tuple):
        return all(_is_column_kept_by_trainer(item) for item in value[:1])
    return isinstance(value, int | float) or hasattr(value, "dtype")


def _make_row_forms(
    rows: Sequence[Mapping[str, Any]], probes: Probes
) -> Iterator[tuple[RowForm, list[dict[str, Any]]]]:
    """The rows in each form that can be made of them."""
    conversations = parse_conversations(rows)
    if not conversations or probes.template is None:
        return
    batch = make_batch(
        conversations,
        probes.renderer(),
        Encoder(probes.tokenizer.backend, only_reference=True),
        exact=True,
    )
    form_rows = []
    for i, example in enumerate(batch.examples):
        place = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        ids, learned = batch.ids[place].tolist(), batch.supervised[place].tolist()
        begin = learned.index(True) if any(learned) else len(ids)
        # The rejected answer is the chosen one with a token more: of another length, so that pairs are padded.
        answer = ids[begin:]
        form_rows.append(
            {
                "input_ids": ids,
                "attention_mask": [1] * len(ids),
                "labels": [
                    id if is_learned else IGNORED
                    for id, is_learned in zip(ids, learned, strict=True)
                ],
                "prompt_ids": ids[:begin],
                "chosen_ids": answer,
                "rejected_ids": [*answer[:1], *answer],
                "messages": example.row.messages,
                "text": example.rendering.text,
            }
        )
    for form in ROW_FORMS:
        yield form, [{key: row[key] for key in form.keys} for row in form_rows]


def _record_collation_of_rows(
    live: LiveObjects, folder: Path, rows: Sequence[Any], given_rows: Sequence[Any]
) -> Record:
    """What the collator makes of these rows, as a record; `given_rows` are those before any preparation."""
    from truetune.probe.record_batches_made_by_collator import observe_collator

    # Without a collator rows of unlike length can't be stacked.
    size = 1 if live.collator is None else BATCH_SIZE
    return observe_collator(
        folder,
        rows,
        given_rows,
        tokenizer=live.tokenizer,
        collator=live.collator,
        model=live.model,
        size=size,
    )


def _processor_template(tokenizer: Any) -> str | None:
    """A processor's chat template counts, not that of the tokenizer inside."""
    inner, template = (
        getattr(tokenizer, "tokenizer", None),
        getattr(tokenizer, "chat_template", None),
    )
    return template if inner is not None and isinstance(template, str) else None


def _training_modes(model: Any) -> list[tuple[Any, bool]]:
    """Each module with whether it is in train mode; empty without a model."""
    if not hasattr(model, "modules"):
        return []
    return [(module, module.training) for module in model.modules()]


@contextmanager
def _preserve_tokenizer_padding_and_truncation(live: LiveObjects) -> Iterator[None]:
    """Put back how the last call of a fast tokenizer padded and cut.

    The tokenizer keeps that in Rust, out of reach of `vars`.
    """
    backends = [
        part._tokenizer
        for part in live.objects_with_state_to_restore
        if hasattr(getattr(part, "_tokenizer", None), "no_padding")
    ]
    states = [(backend, backend.truncation, backend.padding) for backend in backends]
    try:
        yield
    finally:
        for backend, truncation, padding in states:
            if truncation is None:
                backend.no_truncation()
            else:
                backend.enable_truncation(**truncation)
            if padding is None:
                backend.no_padding()
            else:
                backend.enable_padding(**padding)

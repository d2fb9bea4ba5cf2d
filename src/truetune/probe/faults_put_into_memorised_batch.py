"""Mutants: faults put into the batch that a miniature memorises, one by one, to see who notices.

A fault is a function of the batch's rows (`LABEL_FAULTS`). The miniature gets back the weights from before memorising,
is trained on the faulty batch for as many steps as the clean run had, and recites again. What the trainer would have
logged, the loss and the answers are recorded; `truetune.rehearsal.mutation_score` judges them.

The trade-off: a fault is put behind the collator, into finished labels. So it is the same for each trainer, but a fault
that only a certain collator makes is not among them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch

from truetune.probe.choose_rows_to_recite import RowToRecite
from truetune.probe.compact_vocabulary_to_used_ids import VocabTensor
from truetune.probe.measuring.trainer_loss import TrainerLoss
from truetune.probe.memorise_batch import Example, MemoriseOutcome, label_loss, memorise_batch

# Keys of a batch that can be laid out again: of others (positions, weights) it is not known what they would become.
PLAIN_KEYS = {"input_ids", "labels", "attention_mask"}
# Parts of the names of those of a trainer's own metrics that are compared.
COMPARED_METRICS = ("accurac", "margin")
# Seconds that a mutant may take longer than twice the clean run. Chosen, not measured: a machine under load is slower.
SPARE_SECONDS = 5.0


@dataclass
class Line:
    """One row of the batch: ids and labels, without padding; the answer is `ids[answer:end]`."""

    ids: list[int]
    labels: list[int]
    answer: int
    end: int


Lines = list[Line]
WeightSnapshot = dict[str, torch.Tensor]
"""A copy of a model's state dict"""


def snapshot_weights(model: torch.nn.Module) -> WeightSnapshot:
    """The weights of this moment: those before anything is memorised."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def measure_row_mutants(
    trainer: Any,
    model: Any,
    fresh: WeightSnapshot,
    batch: Mapping[str, Any],
    rows: list[RowToRecite],
    learned: MemoriseOutcome,
    tokenizer: Any,
    stops: set[int],
    recite: Callable[[], list[dict[str, Any]]],
    notes: list[str],
    names: Collection[str] | bool = True,
) -> dict[str, Any]:
    """What each fault does to the loss, the logs and the answers; and the clean run's.

    Args:
        trainer: computes the loss and the metrics.
        model: the miniature, which has memorised the clean batch.
        fresh: the weights from which the clean run began, and each fault does.
        batch: the clean one.
        rows: those of the batch.
        learned: the clean run; each fault has as many steps.
        tokenizer: of transformers.
        stops: ids that end an answer.
        recite: asks the model for the rows, as JSON.
        notes: what could not be looked at is added here.
        names: of the faults; True for all.

    Returns:
        clean (loss, logs), mutants, and skipped (name, why), as JSON. Skipped are faults that can't be put into this
        batch, those that the loss does not feel, and those that end the run.
    """
    outcome: dict[str, Any] = {
        "clean": {
            "loss": learned.losses,
            "logs": metrics_user_would_read(trainer, model, batch, notes),
        },
        "mutants": [],
        "skipped": [],
    }
    chosen = dict(LABEL_FAULTS) if isinstance(names, bool) else _faults_named(names)
    places = _row_positions(batch, rows)
    if places is None or {row.kind for row in rows} == {"text"}:
        why = "answers are not found in the batch"
        outcome["skipped"] = [{"name": name, "why": why} for name in chosen]
        return outcome
    lines = _lines_at(batch, rows, places)
    for name, (what, mutate) in chosen.items():
        faulty = mutate(lines, stops)
        if faulty == lines:
            outcome["skipped"].append({"name": name, "why": "it changes nothing in this batch"})
            continue
        faulty_batch = _replace_lines(batch, places, lines, faulty, tokenizer)
        if faulty_batch is None:
            outcome["skipped"].append({"name": name, "why": "this batch can't be laid out again"})
            continue
        # Every fault starts where the clean run started, and has as many steps: only the labels differ.
        model.load_state_dict(fresh)
        try:
            with_fault = _memorise_faulty_batch(trainer, model, faulty_batch, learned)
        except Exception as error:
            outcome["skipped"].append(_outcome_of_skipped_fault(name, error))
            continue
        # To the last bit: a loss that reads the changed labels can't be the same.
        if with_fault.losses == learned.losses:
            outcome["skipped"].append(
                {"name": name, "why": "the loss is the same with it: it does not use these labels"}
            )
            continue
        outcome["mutants"].append(
            {
                "name": name,
                "what": what,
                "loss": with_fault.losses,
                "fell": with_fault.did_loss_fall,
                "logs": metrics_user_would_read(trainer, model, faulty_batch, notes),
                "rows": recite(),
                "label_loss": label_loss(model, _lines_as_single_row_examples(faulty)),
            }
        )
    return outcome


def _faults_named(names: Collection[str]) -> dict[str, tuple[str, Any]]:
    """The faults of these names, in the order in which they are tried."""
    return {name: fault for name, fault in LABEL_FAULTS.items() if name in names}


def _memorise_faulty_batch(
    trainer: Any, model: Any, batch: dict[str, Any], clean: MemoriseOutcome
) -> MemoriseOutcome:
    """Train on a faulty batch with at most as many steps as the clean run had, whether its rows are known or not.

    It still ends before them where its loss is flat: what follows would not change the last loss.
    """
    until = time.perf_counter() + 2 * clean.seconds + SPARE_SECONDS
    steps = len(clean.losses)
    return memorise_batch(model, TrainerLoss(trainer, ()), batch, steps, until, known=lambda: False)


def _lines_as_single_row_examples(lines: Lines) -> list[Example]:
    """Lines as examples of one row each, of which a loss by labels alone is computed."""
    return [Example(0, None, [(line.ids, line.labels)]) for line in lines]


def _lines_at(
    batch: Mapping[str, Any], rows: list[RowToRecite], places: list[tuple[int, int]]
) -> Lines:
    """The rows as they lie in the batch, with the batch's own labels."""
    return [
        Line(
            row.example.ids,
            batch["labels"][line, at : at + len(row.example.ids)].tolist(),
            len(row.trained),
            len(row.trained) + len(row.gold),
        )
        for row, (line, at) in zip(rows, places, strict=True)
    ]


def measure_pair_mutants(
    trainer: Any,
    model: Any,
    fresh: WeightSnapshot,
    loader: Any,
    clean: Mapping[str, Any],
    rehearse: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """What exchanging chosen and rejected answers does, as JSON like that of `measure_row_mutants`.

    `rehearse(loader)` trains the model on pairs from its present weights; `clean` is what it gave right before, from
    the `fresh` weights.
    """
    outcome: dict[str, Any] = {
        "clean": {"loss": clean["loss"], "logs": last_accuracies_and_margins_of_trainer(trainer)},
        "mutants": [],
        "skipped": [],
    }
    model.load_state_dict(fresh)
    try:
        exchanged = rehearse(
            SimpleNamespace(collate_fn=lambda rows: swap_preferences(dict(loader.collate_fn(rows))))
        )
    except Exception as error:
        return {**outcome, "skipped": [_outcome_of_skipped_fault("pairs-exchanged", error)]}
    if exchanged["loss"] == clean["loss"]:
        outcome["skipped"].append(
            {"name": "pairs-exchanged", "why": "the loss is the same with it"}
        )
    else:
        outcome["mutants"].append(
            {
                "name": "pairs-exchanged",
                "what": "chosen and rejected answers exchanged",
                "rows": [],
                **exchanged,
                "logs": last_accuracies_and_margins_of_trainer(trainer),
            }
        )
    return outcome


def _outcome_of_skipped_fault(name: str, error: Exception) -> dict[str, str]:
    """A fault that ended the run, as it stands under `skipped`."""
    return {
        "name": name,
        "why": f"the run ends with it: {type(error).__name__}: {str(error)[:120]}",
    }


def swap_preferences(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch of pairs with chosen and rejected in each other's place; of KTO's, wanted and unwanted."""
    flags, ids = batch.get("label"), batch.get("input_ids")
    if isinstance(flags, list | torch.Tensor):
        return {
            **batch,
            "label": [not flag for flag in flags] if isinstance(flags, list) else ~flags.bool(),
        }
    swapped = {_opposite_name(key): value for key, value in batch.items()}
    if isinstance(ids, torch.Tensor) and len(ids) % 2 == 0:
        # TRL concatenates chosen and rejected rows into one tensor: the halves change places.
        half = len(ids) // 2
        swapped |= {
            key: value.roll(half, 0)
            for key, value in batch.items()
            if isinstance(value, torch.Tensor) and value.dim() and len(value) == len(ids)
        }
    return swapped


def _opposite_name(name: str) -> str:
    """The name of the other side of a pair's key; a key that names no side is its own."""
    if "chosen" in name:
        return name.replace("chosen", "rejected")
    return name.replace("rejected", "chosen")


def metrics_user_would_read(
    trainer: Any, model: Any, batch: Mapping[str, Any], notes: list[str]
) -> dict[str, float]:
    """What the user would read beside the loss: the trainer's own metrics of the last step, and compute_metrics of
    the memorised rows, where the run has rows to evaluate."""
    metrics = last_accuracies_and_margins_of_trainer(trainer)
    compute = getattr(trainer, "compute_metrics", None)
    if compute is None or getattr(trainer, "eval_dataset", None) is None:
        return metrics
    from transformers import EvalPrediction

    try:
        _, logits, labels = trainer.prediction_step(model, dict(batch), False)
        if trainer.preprocess_logits_for_metrics is not None:
            logits = trainer.preprocess_logits_for_metrics(logits, labels)
        computed = compute(
            EvalPrediction(predictions=_as_numpy_arrays(logits), label_ids=_as_numpy_arrays(labels))
        )
        metrics |= {f"eval_{name}": float(value) for name, value in computed.items()}
    except Exception as error:
        note = f"compute_metrics was not asked: {type(error).__name__}: {str(error)[:120]}"
        if note not in notes:
            notes.append(note)
    return metrics


def _as_numpy_arrays(value: Any) -> Any:
    """NumPy's; logits of a cut vocabulary with their columns where they belong, and the lowest score elsewhere."""
    if isinstance(value, VocabTensor):
        # The user's metrics index by vocabulary ids, in numpy, which the tensor's own translation does not reach.
        vocab_map, plain = value.vocab_map, value.as_subclass(torch.Tensor).float()
        shape = (*plain.shape[:-1], vocab_map.size)
        whole = plain.new_full(shape, torch.finfo(torch.float32).min)
        whole[..., vocab_map.ids] = plain
        return whole.cpu().numpy()
    if isinstance(value, torch.Tensor):
        return (value.float() if value.is_floating_point() else value).cpu().numpy()
    return tuple(map(_as_numpy_arrays, value)) if isinstance(value, list | tuple) else value


def last_accuracies_and_margins_of_trainer(trainer: Any) -> dict[str, float]:
    """The last accuracies and margins that the trainer counted itself."""
    counted = (getattr(trainer, "_metrics", None) or {}).get("train", {})
    return {
        name: float(values[-1])
        for name, values in counted.items()
        if values and any(part in name for part in COMPARED_METRICS)
    }


def _row_positions(
    batch: Mapping[str, Any], rows: list[RowToRecite]
) -> list[tuple[int, int]] | None:
    """Line and column at which each row begins in the batch; None where one is not there."""
    ids, labels = batch.get("input_ids"), batch.get("labels")
    if (
        not isinstance(ids, torch.Tensor)
        or not isinstance(labels, torch.Tensor)
        or ids.shape != labels.shape
    ):
        return None
    positions: list[tuple[int, int]] = []
    for row in rows:
        wanted = torch.tensor(row.example.ids, device=ids.device)
        if ids.dim() != 2 or len(wanted) > ids.shape[1]:
            return None
        # (lines, columns, length) windows, without a copy of the batch.
        windows = ids.unfold(1, len(wanted), 1)
        same = (windows == wanted).all(-1).nonzero().tolist()
        # Two equal rows of a batch stand at two places.
        place = next(((line, at) for line, at in same if (line, at) not in positions), None)
        if place is None:
            return None
        positions.append(place)
    return positions


def _replace_lines(
    batch: Mapping[str, Any],
    places: list[tuple[int, int]],
    lines: Lines,
    faulty: Lines,
    tokenizer: Any,
) -> dict[str, Any] | None:
    """The batch with other lines; None where they are of other lengths and it holds more than plain padded lines."""
    if all(len(new.ids) == len(old.ids) for new, old in zip(faulty, lines, strict=True)):
        return _overwrite_lines(batch, places, faulty)
    ids = batch["input_ids"]
    if set(batch) != PLAIN_KEYS or [row for row, _ in places] != list(range(len(ids))):
        return None
    # Padding is masked, so any id does.
    pad = getattr(tokenizer, "pad_token_id", None) or 0
    # A batch that is padded on the left has a row that begins behind its first column.
    left = any(at for _, at in places)
    return {
        "input_ids": _pad_like(ids, [line.ids for line in faulty], pad, left=left),
        "labels": _pad_like(ids, [line.labels for line in faulty], -100, left=left),
        "attention_mask": _pad_like(ids, [[1] * len(line.ids) for line in faulty], 0, left=left),
    }


def _overwrite_lines(
    batch: Mapping[str, Any], places: list[tuple[int, int]], faulty: Lines
) -> dict[str, Any]:
    """The batch with these lines at their places; they are as long as those that stand there."""
    ids, labels = batch["input_ids"].clone(), batch["labels"].clone()
    for (row, at), line in zip(places, faulty, strict=True):
        ids[row, at : at + len(line.ids)] = ids.new_tensor(line.ids)
        labels[row, at : at + len(line.ids)] = labels.new_tensor(line.labels)
    return {**batch, "input_ids": ids, "labels": labels}


def _pad_like(ids: torch.Tensor, rows: list[list[int]], fill: int, *, left: bool) -> torch.Tensor:
    """(rows, longest) numbers, padded on one side, of the dtype and on the device of `ids`."""
    width = max(len(row) for row in rows)
    padded = []
    for row in rows:
        spaces = [fill] * (width - len(row))
        padded.append(spaces + row if left else row + spaces)
    return torch.tensor(padded, dtype=ids.dtype, device=ids.device)


def _mask_stop_tokens(lines: Lines, stops: set[int]) -> Lines:
    """The rows with their stop tokens masked, without loss: the answer never learns to end."""
    return [
        replace(
            line,
            labels=[
                -100 if id in stops else label
                for id, label in zip(line.ids, line.labels, strict=True)
            ],
        )
        for line in lines
    ]


def _drop_stop_tokens(lines: Lines, stops: set[int]) -> Lines:
    """The rows with their stop tokens dropped: they end before them."""
    return [_truncate_line(line, line.end) for line in lines]


def _cut_second_half_of_answers(lines: Lines, stops: set[int]) -> Lines:
    """The second half of each answer is missing."""
    return [_truncate_line(line, line.answer + (line.end - line.answer + 1) // 2) for line in lines]


def _truncate_line(line: Line, end: int) -> Line:
    """A row without its tokens from `end` on."""
    return replace(line, ids=line.ids[:end], labels=line.labels[:end])


def _shift_labels_one_place_earlier(lines: Lines, stops: set[int]) -> Lines:
    """Labels one place earlier, as where both the loop and the model shift them."""
    return [replace(line, labels=[*line.labels[1:], -100]) for line in lines]


def _supervise_prompt_and_answer(lines: Lines, stops: set[int]) -> Lines:
    """Everything is learned, the prompt too."""
    return [replace(line, labels=line.ids) for line in lines]


def _supervise_prompt_alone(lines: Lines, stops: set[int]) -> Lines:
    """The prompt has labels, and the answer has none."""
    return [
        replace(line, labels=line.ids[: line.answer] + [-100] * (len(line.ids) - line.answer))
        for line in lines
    ]


def _give_answers_of_next_rows(lines: Lines, stops: set[int]) -> Lines:
    """Each prompt has the answer of the next row."""
    return [
        replace(
            line,
            ids=line.ids[: line.answer] + other.ids[other.answer :],
            labels=line.labels[: line.answer] + other.labels[other.answer :],
        )
        for line, other in zip(lines, lines[1:] + lines[:1], strict=True)
    ]


def _ignore_labels_of_every_second_row(lines: Lines, stops: set[int]) -> Lines:
    """Every second row has no labels."""
    return [
        replace(line, labels=[-100] * len(line.ids)) if i % 2 else line
        for i, line in enumerate(lines)
    ]


# Faults by their public name (`--mutate NAME`): what each does, and how.
LABEL_FAULTS: dict[str, tuple[str, Callable[[Lines, set[int]], Lines]]] = {
    "stop-masked": ("no label on the stop token, as where pad = eos", _mask_stop_tokens),
    "stop-dropped": ("rows end before their stop token", _drop_stop_tokens),
    "shifted-twice": (
        "labels moved by one before the model moves them",
        _shift_labels_one_place_earlier,
    ),
    "prompt-learned": ("the prompt is learned as well", _supervise_prompt_and_answer),
    "prompt-alone": ("the prompt is learned and the answer is not", _supervise_prompt_alone),
    "others-answers": ("each prompt has the next row's answer", _give_answers_of_next_rows),
    "half-ignored": ("no labels in every second row", _ignore_labels_of_every_second_row),
    "answers-cut": ("answers end in their middle", _cut_second_half_of_answers),
}

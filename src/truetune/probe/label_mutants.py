"""Mutants: faults put into the batch that a miniature memorises, one by one, to see who notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch

from truetune.probe.choose_rows_to_recite import RecitedRow
from truetune.probe.measuring.trainer_loss import TrainerLoss
from truetune.probe.memorise_batch import Example, MemoriseOutcome, label_loss, memorise_batch
from truetune.probe.vocab_map import VocabTensor

# Keys of a batch that can be laid out again: of others (positions, weights) it is not known what they would become.
PLAIN = {"input_ids", "labels", "attention_mask"}
# In the names of a trainer's own metrics that are compared.
LOGGED = ("accurac", "margin")
# Seconds that a mutant may take longer than twice the clean run. Chosen, not measured: a machine under load is slower.
SPARE = 5.0


@dataclass
class Line:
    """One row of the batch: ids and labels, without padding; the answer is `ids[answer:end]`."""

    ids: list[int]
    labels: list[int]
    answer: int
    end: int


Lines = list[Line]
Fresh = dict[str, torch.Tensor]


def snapshot_weights(model: torch.nn.Module) -> Fresh:
    """The weights before anything is memorised."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def measure_row_mutants(
    trainer: Any,
    model: Any,
    fresh: Fresh,
    batch: Mapping[str, Any],
    parts: list[RecitedRow],
    learned: MemoriseOutcome,
    tokenizer: Any,
    stops: set[int],
    recited: Callable[[], list[dict[str, Any]]],
    notes: list[str],
    names: Collection[str] | bool = True,
) -> dict[str, Any]:
    """What each fault (of these names, or all) does to the loss, the logs and the answers; and the clean run's.

    Each begins with the `fresh` weights and takes as many steps as `learned`. Faults that can't be put into this
    batch, those that the loss does not feel, and those that end the run are under `skipped`.
    """
    outcome: dict[str, Any] = {
        "clean": {"loss": learned.losses, "logs": logs_of(trainer, model, batch, notes)},
        "mutants": [],
        "skipped": [],
    }
    chosen = dict(ROWS) if isinstance(names, bool) else _faults_named(names)
    places = _row_positions(batch, parts)
    if places is None or {part.kind for part in parts} == {"text"}:
        why = "answers are not found in the batch"
        outcome["skipped"] = [{"name": name, "why": why} for name in chosen]
        return outcome
    lines = _lines_at(batch, parts, places)
    for name, (what, mutate) in chosen.items():
        faulty = mutate(lines, stops)
        wrong = None if faulty == lines else _replace_lines(batch, places, lines, faulty, tokenizer)
        if wrong is None:
            unchanged = "it changes nothing in this batch"
            why = unchanged if faulty == lines else "this batch can't be laid out again"
            outcome["skipped"].append({"name": name, "why": why})
            continue
        # Every fault starts where the clean run started, and has as many steps: only the labels differ.
        model.load_state_dict(fresh)
        try:
            with_fault = _memorise_as_clean(trainer, model, wrong, learned)
        except Exception as error:
            outcome["skipped"].append(_error_outcome(name, error))
            continue
        # To the last bit: a loss that reads the changed labels can't be the same.
        if with_fault.losses == learned.losses:
            outcome["skipped"].append(
                {"name": name, "why": "the loss is the same with it: it does not use these labels"}
            )
            continue
        examples = _examples_of(faulty)
        outcome["mutants"].append(
            {
                "name": name,
                "what": what,
                "loss": with_fault.losses,
                "fell": with_fault.fell,
                "logs": logs_of(trainer, model, wrong, notes),
                "rows": recited(),
                "label_loss": label_loss(model, examples),
            }
        )
    return outcome


def _faults_named(names: Collection[str]) -> dict[str, tuple[str, Any]]:
    """The faults of these names, in the order in which they are tried."""
    return {name: fault for name, fault in ROWS.items() if name in names}


def _memorise_as_clean(
    trainer: Any, model: Any, batch: dict[str, Any], clean: MemoriseOutcome
) -> MemoriseOutcome:
    """Train on a faulty batch with as many steps as the clean run had, whether its rows are known or not."""
    until = time.perf_counter() + 2 * clean.seconds + SPARE
    steps = len(clean.losses)
    return memorise_batch(model, TrainerLoss(trainer, ()), batch, steps, until, known=lambda: False)


def _examples_of(lines: Lines) -> list[Example]:
    """Lines as examples of one row each, of which a loss by labels alone is computed."""
    return [Example(0, None, [(line.ids, line.labels)]) for line in lines]


def _lines_at(
    batch: Mapping[str, Any], parts: list[RecitedRow], places: list[tuple[int, int]]
) -> Lines:
    """The rows as they lie in the batch, with the batch's own labels."""
    return [
        Line(
            part.example.ids,
            batch["labels"][row, at : at + len(part.example.ids)].tolist(),
            len(part.trained),
            len(part.trained) + len(part.gold),
        )
        for part, (row, at) in zip(parts, places, strict=True)
    ]


def measure_pair_mutants(
    trainer: Any,
    model: Any,
    fresh: Fresh,
    loader: Any,
    clean: Mapping[str, Any],
    rehearsed: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """Chosen and rejected exchanged. `clean` is what `rehearsed(loader)` gave, right before."""
    outcome: dict[str, Any] = {
        "clean": {"loss": clean["loss"], "logs": logged_metrics(trainer)},
        "mutants": [],
        "skipped": [],
    }
    model.load_state_dict(fresh)
    try:
        exchanged = rehearsed(
            SimpleNamespace(collate_fn=lambda rows: swap_preferences(dict(loader.collate_fn(rows))))
        )
    except Exception as error:
        return {**outcome, "skipped": [_error_outcome("pairs-exchanged", error)]}
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
                "logs": logged_metrics(trainer),
            }
        )
    return outcome


def _error_outcome(name: str, error: Exception) -> dict[str, str]:
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
    if "chosen" in name:
        return name.replace("chosen", "rejected")
    return name.replace("rejected", "chosen")


def logs_of(
    trainer: Any, model: Any, batch: Mapping[str, Any], notes: list[str]
) -> dict[str, float]:
    """What the user would read beside the loss: the trainer's own metrics of the last step, and compute_metrics of
    the memorised rows, where the run has rows to evaluate."""
    metrics = logged_metrics(trainer)
    compute = getattr(trainer, "compute_metrics", None)
    if compute is None or getattr(trainer, "eval_dataset", None) is None:
        return metrics
    from transformers import EvalPrediction

    try:
        _, logits, labels = trainer.prediction_step(model, dict(batch), False)
        if trainer.preprocess_logits_for_metrics is not None:
            logits = trainer.preprocess_logits_for_metrics(logits, labels)
        computed = compute(
            EvalPrediction(predictions=_as_arrays(logits), label_ids=_as_arrays(labels))
        )
        metrics |= {f"eval_{name}": float(value) for name, value in computed.items()}
    except Exception as error:
        if (
            note := f"compute_metrics was not asked: {type(error).__name__}: {str(error)[:120]}"
        ) not in notes:
            notes.append(note)
    return metrics


def _as_arrays(value: Any) -> Any:
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
    return tuple(map(_as_arrays, value)) if isinstance(value, list | tuple) else value


def logged_metrics(trainer: Any) -> dict[str, float]:
    """The last accuracies and margins that the trainer counted itself."""
    counted = (getattr(trainer, "_metrics", None) or {}).get("train", {})
    return {
        name: float(values[-1])
        for name, values in counted.items()
        if values and any(part in name for part in LOGGED)
    }


def _row_positions(
    batch: Mapping[str, Any], parts: list[RecitedRow]
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
    for part in parts:
        wanted = torch.tensor(part.example.ids, device=ids.device)
        if ids.dim() != 2 or len(wanted) > ids.shape[1]:
            return None
        same = (ids.unfold(1, len(wanted), 1) == wanted).all(-1).nonzero().tolist()
        place = next(((row, at) for row, at in same if (row, at) not in positions), None)
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
    if set(batch) != PLAIN or [row for row, _ in places] != list(range(len(ids))):
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


def _stop_masked(lines: Lines, stops: set[int]) -> Lines:
    """Stop tokens have no loss: the answer never learns to end."""
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


def _stop_dropped(lines: Lines, stops: set[int]) -> Lines:
    """The rows end before their stop token."""
    return [_end_line(line, line.end) for line in lines]


def _cut_lines(lines: Lines, stops: set[int]) -> Lines:
    """The second half of each answer is missing."""
    return [_end_line(line, line.answer + (line.end - line.answer + 1) // 2) for line in lines]


def _end_line(line: Line, end: int) -> Line:
    """A row without its tokens from `end` on."""
    return replace(line, ids=line.ids[:end], labels=line.labels[:end])


def _shift_lines(lines: Lines, stops: set[int]) -> Lines:
    """Labels one place earlier, as where both the loop and the model shift them."""
    return [replace(line, labels=[*line.labels[1:], -100]) for line in lines]


def _all_supervised(lines: Lines, stops: set[int]) -> Lines:
    """Everything is learned, the prompt too."""
    return [replace(line, labels=line.ids) for line in lines]


def _prompt_alone(lines: Lines, stops: set[int]) -> Lines:
    return [
        replace(line, labels=line.ids[: line.answer] + [-100] * (len(line.ids) - line.answer))
        for line in lines
    ]


def _others_answers(lines: Lines, stops: set[int]) -> Lines:
    return [
        replace(
            line,
            ids=line.ids[: line.answer] + other.ids[other.answer :],
            labels=line.labels[: line.answer] + other.labels[other.answer :],
        )
        for line, other in zip(lines, lines[1:] + lines[:1], strict=True)
    ]


def _half_ignored(lines: Lines, stops: set[int]) -> Lines:
    return [
        replace(line, labels=[-100] * len(line.ids)) if i % 2 else line
        for i, line in enumerate(lines)
    ]


# Faults of rows: what each does, and how.
ROWS: dict[str, tuple[str, Callable[[Lines, set[int]], Lines]]] = {
    "stop-masked": ("no label on the stop token, as where pad = eos", _stop_masked),
    "stop-dropped": ("rows end before their stop token", _stop_dropped),
    "shifted-twice": ("labels moved by one before the model moves them", _shift_lines),
    "prompt-learned": ("the prompt is learned as well", _all_supervised),
    "prompt-alone": ("the prompt is learned and the answer is not", _prompt_alone),
    "others-answers": ("each prompt has the next row's answer", _others_answers),
    "half-ignored": ("no labels in every second row", _half_ignored),
    "answers-cut": ("answers end in their middle", _cut_lines),
}

"""The rehearsal itself: a record of the run, then a few rows memorised and recited by a miniature of its model."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truetune.probe import label_mutants, miniature_model, rehearsal_overrides, rehearse_pairs
from truetune.probe.choose_rows_to_recite import (
    RecitedRow,
    choose_rows,
    parse_first_rows,
    prompt_difference,
)
from truetune.probe.computed_loss import loss_of_one_pass
from truetune.probe.generate_and_score_answers import (
    MAX_NEW_TOKENS,
    SPARE_TOKENS,
    GreedyAnswer,
    compare_answer,
    generate_greedily,
    score_answer,
)
from truetune.probe.laws import measure_laws
from truetune.probe.measuring.trainer_loss import TrainerLoss
from truetune.probe.memorise_batch import Example, collect_examples, label_loss, memorise_batch
from truetune.probe.observe_run import ObservedData, law_names, observe_run, trial_of, unwrap_model
from truetune.probe.peek_batches import PeekedBatch, peek_batches
from truetune.probe.run_record import Record
from truetune.probe.swap_in_miniature import innermost_model, swap_in_miniature
from truetune.probe.temporary_data_loader import temporary_data_loader
from truetune.probe.vocab_map import compact_vocabulary

Keep = Callable[[Record], None]
# Rows that are memorised. Chosen, not measured: with half of them one odd row would decide; with twice as many a
# rehearsal of a long chat does not end within its time.
ROWS = 6
# A vocabulary is cut where at most a quarter of it is in use: else too little time is saved for the risk.
MIN_SAVING = 4
# Characters of a question below which an answer that begins with it is no echo: "Hi" answers "Hi".
MIN_ECHO_CHARS = 8
# After so many no further step of memorising is begun.
SECONDS = 40.0


def rehearse_run(
    trainer: Any,
    orders: dict[str, Any] | None = None,
    loader: Any = None,
    source_data: Any = None,
    folder: Any = None,
    keep: Keep | None = None,
) -> Record:
    """A record of this trainer's run with `facts["recitation"]`; the trainer is as before afterwards.

    `orders`: laws (quick, all, none, or names), batches, rows, mutate (are faults tried? or their names).
    `keep` is given the record as far as it is made: with the batches, and after each law; a process may end in between.
    Raises what the user's data set or collator raises.
    """
    orders, started = orders or {}, time.perf_counter()
    folder = Path(folder or tempfile.mkdtemp(prefix="truetune-"))
    own = orders.get("mode") == "rehearse"
    with (
        temporary_data_loader(trainer, loader) as (loader, tokenizer),
        swap_in_miniature(trainer, own) as model,
    ):
        record = observe_run(
            folder,
            model=model,
            loader=loader,
            tokenizer=tokenizer,
            trainer=trainer,
            source_data=source_data,
            count=orders.get("batches", 8),
            keep=keep,
        )
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        raw = _raw_data(source_data, own)
        record.facts["recitation"] = _memorise_and_recite(
            trainer, model, loader, tokenizer, raw, orders, record, started, keep
        )
    record.facts["notes"] += miniature_model.notes
    return record


def _raw_data(source_data: Any, own: bool) -> Any:
    """The data set whose rows are texts: the trainer's, or one that the program has mapped to ids before.

    In a process of our `own` those that were mapped are known (`rehearsal_overrides.mapped_datasets`).
    """
    mapped = rehearsal_overrides.mapped_datasets if own else ()
    for data in (source_data, *mapped):
        if parse_first_rows(data):
            return data
    return source_data


def _memorise_and_recite(
    trainer: Any,
    model: Any,
    loader: Any,
    tokenizer: Any,
    source_data: Any,
    orders: dict[str, Any],
    record: Record,
    started: float,
    keep: Keep | None,
) -> dict[str, Any]:
    notes = record.facts["notes"]
    peeked, kind = peek_batches(loader, orders.get("batches", 8)), record.facts["trainer"]["kind"]
    examples = collect_examples(loader.dataset, loader.collate_fn)
    stops = stops_of(model, tokenizer)
    questions = parse_first_rows(source_data)
    parts: list[RecitedRow] = []
    if tokenizer is not None:
        parts = choose_rows(examples, questions, tokenizer, stops, orders.get("rows", ROWS))
    reference = getattr(trainer, "ref_model", None)
    vocabulary = _compact_miniature(
        model, reference, peeked, examples, parts, tokenizer, stops, notes
    )
    # On the miniature before it is trained: a law is about what the first step will do.
    laws = law_names(orders.get("laws", "quick"))
    if peeked and laws:
        seen = ObservedData(peeked, loader.collate_fn, loader.dataset)
        _measure_laws(trainer, model, tokenizer, seen, laws, record, keep)
    facts: dict[str, Any] = {
        "shape": _model_shape(model),
        "vocabulary": vocabulary,
        "rows": [],
        "loss": [],
        "stops": sorted(stops),
        "kind": kind,
    }
    # Before anything is trained: each fault starts from these weights.
    fresh = label_mutants.snapshot_weights(model) if orders.get("mutate") else None
    if kind not in ("sft", "loop"):
        facts |= rehearse_pairs.rehearse_pairs(
            trainer, model, loader, examples, tokenizer, stops, started + SECONDS
        )
        if fresh is not None and facts.get("pairs"):
            record.facts["mutation"] = label_mutants.measure_pair_mutants(
                trainer,
                model,
                fresh,
                loader,
                facts,
                lambda faulty: rehearse_pairs.rehearse_pairs(
                    trainer, model, faulty, examples, tokenizer, stops, float("inf")
                ),
            )
    elif parts:
        batch = _to_device(loader.collate_fn([part.example.row for part in parts]), model)
        learned = memorise_batch(
            model,
            TrainerLoss(trainer, ()),
            batch,
            until=started + SECONDS,
            known=lambda: _knows_answers(model, parts, stops),
        )
        facts |= {
            "loss": learned.losses,
            "fell": learned.fell,
            "rows": _recite_rows(model, parts, tokenizer, stops),
            "label_loss": label_loss(model, [part.example for part in parts]),
        }
        if fresh is not None:
            record.facts["mutation"] = label_mutants.measure_row_mutants(
                trainer,
                model,
                fresh,
                batch,
                parts,
                learned,
                tokenizer,
                stops,
                lambda: _recite_rows(model, parts, tokenizer, stops),
                notes,
                orders["mutate"],
            )
    else:
        facts["nothing"] = _why_nothing_recited(tokenizer, examples)
        notes.append(f"nothing could be recited: {facts['nothing']}")
    return facts | {"seconds": round(time.perf_counter() - started, 2)}


def _measure_laws(
    trainer: Any,
    model: Any,
    tokenizer: Any,
    seen: ObservedData,
    laws: tuple[str, ...],
    record: Record,
    keep: Keep | None,
) -> None:
    """Measure these laws on the miniature, and see which function computes its loss, into the record; `keep` is given
    it after each law."""
    kind = record.facts["trainer"]["kind"]
    trial = trial_of(unwrap_model(model), seen, tokenizer, trainer, None, kind)
    trainer_facts = record.facts["trainer"]
    trainer_facts["loss"] = loss_of_one_pass(trial, trainer_facts["loss"])
    outcomes = record.facts["laws"] = {}
    measure_laws(trial, laws, outcomes=outcomes, keep=partial(keep, record) if keep else None)


def _why_nothing_recited(tokenizer: Any, examples: list[Example]) -> str:
    """Why no row could be recited, and what to do."""
    if tokenizer is None:
        return "there is no tokenizer; give the Trainer processing_class=tokenizer"
    return (
        "no row holds a prompt and an answer to it"
        if examples
        else "the collator gives no input_ids"
    )


def _knows_answers(model: Any, parts: list[RecitedRow], stops: set[int]) -> bool:
    """Are all tokens of the answers the likeliest ones?"""
    model.eval()
    right = min(
        score_answer(model, part.trained or part.prompt, part.gold, stops).right for part in parts
    )
    model.train()
    return right == 1.0


def stops_of(model: Any, tokenizer: Any) -> set[int]:
    """Ids at which a server stops: generation_config's and the tokenizer's."""
    generation = getattr(innermost_model(model), "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    # A list in generation_config, where a model has several.
    eos_ids = set(ids if isinstance(ids, list | tuple) else [ids])
    return {
        int(id) for id in eos_ids | {getattr(tokenizer, "eos_token_id", None)} if id is not None
    }


def _compact_miniature(
    model: Any,
    reference: Any,
    peeked: list[PeekedBatch],
    examples: list[Example],
    parts: list[RecitedRow],
    tokenizer: Any,
    stops: set[int],
    notes: list[str],
) -> dict[str, Any]:
    """Cut the miniature's vocabulary to the ids that occur; the whole one where that can't be."""
    inner = innermost_model(model)
    into = inner.get_input_embeddings() if hasattr(inner, "get_input_embeddings") else None
    rows = getattr(into, "num_embeddings", 0)
    ids = _special_ids(inner, tokenizer) | stops | _ids_in_batches(peeked)
    for example in examples:
        for line, _ in example.lines:
            ids.update(line)
    for part in parts:
        ids.update(part.prompt)
    if rows < MIN_SAVING * len(ids):
        return {"size": rows, "kept": rows}
    try:
        vocab_map = compact_vocabulary(inner, ids)
        if reference is not None:
            compact_vocabulary(innermost_model(reference), ids)
    except (ValueError, AttributeError, TypeError) as error:
        notes.append(f"the vocabulary could not be compacted ({error}): the rehearsal takes longer")
        return {"size": rows, "kept": rows}
    return {"size": rows, "kept": len(vocab_map.ids)}


def _special_ids(model: Any, tokenizer: Any) -> set[int]:
    """Ids that may occur in no row, and are needed all the same: 0, special tokens, the configuration's pad and BOS."""
    config = getattr(model, "config", None)
    named = [getattr(config, name, None) for name in ("pad_token_id", "bos_token_id")]
    special = set(getattr(tokenizer, "all_special_ids", []) or [])
    return {0} | special | {id for id in named if isinstance(id, int)}


def _ids_in_batches(peeked: list[PeekedBatch]) -> set[int]:
    """All whole numbers of the batches, masks and positions too: what is no id of theirs costs a slot only."""
    ids: set[int] = set()
    for batch in peeked:
        for value in batch.inputs.values():
            if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.numel():
                ids |= set(value.flatten().tolist())
    return ids


def _recite_rows(
    model: Any, parts: list[RecitedRow], tokenizer: Any, stops: set[int]
) -> list[dict[str, Any]]:
    """What the model answers to each row, and how that compares, as JSON."""
    limits = [min(len(part.gold), MAX_NEW_TOKENS) + SPARE_TOKENS for part in parts]
    answers = generate_greedily(model, [part.prompt for part in parts], stops, limits)
    # Where the served prompt is another than the trained one, both are asked: what the trained one recites and the
    # served one does not was lost to the prompt, not to the training.
    differing = [i for i, part in enumerate(parts) if part.trained != part.prompt and part.trained]
    again = generate_greedily(
        model, [parts[i].trained for i in differing], stops, [limits[i] for i in differing]
    )
    trained = dict(zip(differing, again, strict=True))
    return [
        _row_outcome(model, part, answers[i], trained.get(i), tokenizer, stops)
        for i, part in enumerate(parts)
    ]


def _row_outcome(
    model: Any,
    part: RecitedRow,
    answer: GreedyAnswer,
    trained: GreedyAnswer | None,
    tokenizer: Any,
    stops: set[int],
) -> dict[str, Any]:
    """How one row was recited, as JSON.

    Args:
        model: that has memorised the rows.
        part: the row.
        answer: to the served prompt.
        trained: the answer to the trained prompt; None where both prompts are the same.
        tokenizer: of transformers.
        stops: ids that end an answer.
    """
    gold = tokenizer.decode(part.gold, skip_special_tokens=True)
    after_trained = score_answer(model, part.trained or part.prompt, part.gold, stops)
    after_served = after_trained
    if part.trained != part.prompt:
        after_served = score_answer(model, part.prompt, part.gold, stops)
    also = gold if part.source is None or _only_framed(gold, part) else ""
    outcome = compare_answer(answer, part.reference, tokenizer, also=also)
    again = None
    if trained is not None:
        again = compare_answer(trained, part.reference, tokenizer, also=also)
    source = _facts_of_source(part, outcome["said"], tokenizer)
    return outcome | {
        "index": part.example.index,
        "number": source["number"],
        "kind": part.kind,
        "question": source["question"],
        "reference": part.reference.strip(),
        "field": source["field"],
        "echo": source["echo"],
        "trained": again,
        "prompt": prompt_difference(part, tokenizer),
        "probability": [after_trained.log_probability, after_served.log_probability],
        "closed": part.closed,
        "right": after_trained.right,
        "stop_after": after_trained.stop_after,
        "stop_inside": after_trained.stop_inside,
        "supervised": _count_supervised(part),
        "answer": len(part.gold),
        "ids": {
            "trained": part.prompt if part.kind == "inside" else part.trained,
            "prompt": part.prompt,
        },
        "asked": _server_request(part),
    }


def _facts_of_source(part: RecitedRow, said: str, tokenizer: Any) -> dict[str, Any]:
    """What the user's row says of an answer: its number and question, a field that was answered instead, an echo."""
    if part.source is None:
        # The end of the prompt stands for the question.
        question = tokenizer.decode(part.trained[-40:])
        return {"number": None, "question": question, "field": None, "echo": False}
    fields = (name for name, text in part.source.others.items() if _same_words(said, text))
    question = part.source.question
    return {
        "number": part.source.number,
        "question": question,
        "field": next(fields, None),
        "echo": len(said) > MIN_ECHO_CHARS and _begins_with_question(question, said),
    }


def _count_supervised(part: RecitedRow) -> int | None:
    """Tokens of the answer that are in the loss; None where the row has no labels."""
    labels, start = part.example.labels, len(part.trained)
    if labels is None:
        return None
    return sum(label != -100 for label in labels[start : start + len(part.gold)])


def _server_request(part: RecitedRow) -> dict[str, Any] | None:
    """What a server is asked for this row, as JSON; None where it is no chat."""
    source = part.source
    if source is None or not source.chat or not source.messages or part.kind == "text":
        return None
    request = {"messages": source.messages, "tools": source.tools, "settings": source.settings}
    return dict(json.loads(json.dumps(request, default=str)))


def _only_framed(gold: str, part: RecitedRow) -> bool:
    """Is the reference in the row's answer, with nothing but the template's own text before it?"""
    before, reference, _ = gold.partition(part.reference.strip())
    assert part.source is not None
    texts = [part.source.question, *part.source.others.values()]
    return bool(reference) and not any(text.strip() and text.strip() in before for text in texts)


def _same_words(answer: str, text: str) -> bool:
    """Does an answer begin with this text of the row, which is not its answer?"""
    return bool(text.strip()) and answer.startswith(text.strip())


def _begins_with_question(question: str, answer: str) -> bool:
    """Does an answer repeat the question, up to white space, or a beginning of it?"""
    question, answer = " ".join(question.split()), " ".join(answer.split())
    return len(question) > MIN_ECHO_CHARS and (
        answer.startswith(question) or question.startswith(answer)
    )


def _to_device(batch: Any, model: Any) -> dict[str, Any]:
    """A batch with its tensors on the model's device."""
    device = next(model.parameters()).device
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in dict(batch).items()}


def _model_shape(model: Any) -> dict[str, Any]:
    """The size of the miniature, and of the model that it stands for, as JSON."""
    inner = innermost_model(model)
    config = (
        inner.config.get_text_config()
        if hasattr(getattr(inner, "config", None), "get_text_config")
        else None
    )
    return {
        "class": type(inner).__name__,
        "parameters": sum(p.numel() for p in inner.parameters()),
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
        "of": {
            name: miniature_model.real_config.get("config", {}).get(name)
            for name in ("num_hidden_layers", "hidden_size")
        },
    }

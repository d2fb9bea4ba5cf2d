"""Rehearses a run: records it, and lets a miniature of its model memorise a few rows and recite them.

It is called where a Trainer would begin: in a process of our own (`truetune rehearse`, `rehearsal_hook`) or in the
user's (`truetune.rehearse(trainer)`). A loop of the user's own never comes here: the hook ends it before its first
step, and `truetune.rehearsal.rehearse_in_process` refuses it, since what computes its loss is not known.

1. The batches are recorded, as `observe_run` does for each run.
2. The miniature's vocabulary is cut to the ids that occur, and the laws are measured on it.
3. A few rows are memorised by the trainer's own collator and loss (`memorise_batch`), and asked for again, each from
   its prompt as it will be served. Trainers of preferences train on pairs instead (`rehearse_margins_of_pairs`),
   and those that sample their answers learn by rewards (`rehearse_rewards`).
4. Where faults were asked for, the third step is repeated with each (`faults_put_into_memorised_batch`), from the same
weights.

The trade-off: all has to end within a minute on one CPU, so few and short rows are memorised, and the time of the laws
counts as well. Where the time is up before the loss has fallen, the report says that the rows were learned in part, and
no answer is judged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truetune.probe import (
    build_miniatures_instead_of_models,
    faults_put_into_memorised_batch,
    rehearsal_overrides,
    rehearse_margins_of_pairs,
)
from truetune.probe.choose_rows_to_recite import (
    RowToRecite,
    choose_shortest_rows_of_different_prompts,
    difference_of_served_and_trained_prompt,
    parse_first_rows,
)
from truetune.probe.compact_vocabulary_to_used_ids import compact_vocabulary
from truetune.probe.find_function_computing_loss import loss_of_one_pass
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
from truetune.probe.memorise_batch import (
    Example,
    collect_first_documents,
    label_loss,
    memorise_batch,
)
from truetune.probe.orders_from_launcher_to_hook import HookOrders
from truetune.probe.peek_batches import PeekedBatch, peek_batches
from truetune.probe.record_rollouts_of_trl_trainer import can_record_rollouts
from truetune.probe.record_run_ready_to_train import (
    ObservedData,
    law_names,
    observe_run,
    trial_of,
    unwrap_model,
)
from truetune.probe.rehearse_rewards import rehearse_rewards
from truetune.probe.run_record import Record
from truetune.probe.swap_in_miniature import innermost_model, swap_in_miniature
from truetune.probe.temporary_data_loader import temporary_data_loader_and_tokenizer

Keep = Callable[[Record], None]
# Rows that are memorised, unless the orders say otherwise. Chosen, not measured: with half of them one odd row would
# decide; with twice as many a rehearsal of a long chat does not end within its time.
MAX_MEMORISED_ROWS = 6
# A vocabulary is cut where at most a quarter of it is in use. Chosen, not measured: else little time is saved, and a
# loss that does not go through `VocabTensor` as expected would be the miniature's fault and not the run's.
MIN_VOCABULARY_PER_USED_ID = 4
# Characters of a question below which an answer that begins with it is no echo: "Hi" answers "Hi".
MIN_ECHO_CHARS = 8
# Tokens of a prompt that are shown where its question is not known: a line of text.
SHOWN_PROMPT_TOKENS = 40
# From the beginning of the rehearsal, its laws included, after so many no further step of memorising is begun. Chosen,
# not measured: who waits at a terminal waits for a minute. At half, slow laws leave too few steps to memorise.
MAX_SECONDS = 40.0


def rehearse_run(
    trainer: Any,
    orders: HookOrders,
    folder: Path,
    *,
    loader: Any = None,
    source_data: Any = None,
    keep: Keep | None = None,
) -> Record:
    """A record of this trainer's run with `facts["recitation"]`; the trainer is as before afterwards.

    Args:
        trainer: of transformers, about to train.
        orders: laws (quick, all, none, or names), batches, rows, mutate (are faults tried? or their names), mode.
        folder: takes the tokenizer's files; whoever reads the record removes it.
        loader: the trainer's own; None to make one.
        source_data: rows before any preparation, where they are known.
        keep: is given the record as far as it is made: with the batches, and after each law; a process may end in
            between.

    Raises what the user's data set or collator raises.
    """
    started = time.perf_counter()
    own = orders.get("mode") == "rehearse"
    with (
        temporary_data_loader_and_tokenizer(trainer, loader) as (loader, tokenizer),
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
        rehearsal = _Rehearsal(
            trainer=trainer,
            model=model,
            loader=loader,
            # Of a processor: the tokenizer inside.
            tokenizer=getattr(tokenizer, "tokenizer", tokenizer),
            source_data=_dataset_before_mapping_to_ids(source_data, own),
            orders=orders,
            record=record,
            deadline=started + MAX_SECONDS,
            keep=keep,
        )
        if can_record_rollouts(trainer):
            recitation = rehearsal.rehearse_by_rewards()
            # Its batches hold prompts alone: no line of them is missed where the miniature was trained by rewards.
            if "nothing" not in recitation["rewards"] and "lost" in record.facts:
                record.facts["rollouts_follow"] = record.facts.pop("lost")
        else:
            recitation = rehearsal.memorise_and_recite()
        recitation["seconds"] = round(time.perf_counter() - started, 2)
        record.facts["recitation"] = recitation
    record.facts["notes"] += build_miniatures_instead_of_models.notes
    return record


def _dataset_before_mapping_to_ids(source_data: Any, own: bool) -> Any:
    """The data set whose rows are texts: the trainer's, or one that the program has mapped to ids before.

    In a process of our `own` those that were mapped are known (`rehearsal_overrides.mapped_datasets`).
    """
    mapped = rehearsal_overrides.mapped_datasets if own else ()
    for data in (source_data, *mapped):
        if parse_first_rows(data):
            return data
    return source_data


@dataclass
class _Rehearsal:
    """What the steps of one rehearsal share."""

    trainer: Any
    model: Any
    """The miniature"""
    loader: Any
    tokenizer: Any
    """None where the trainer has none: then nothing is recited"""
    source_data: Any
    """Rows of texts, where they are known"""
    orders: HookOrders
    record: Record
    deadline: float
    """By `time.perf_counter`: no step of memorising begins after it"""
    keep: Keep | None

    def memorise_and_recite(self) -> dict[str, Any]:
        """The facts of the recitation, as `truetune.checks.recitation.recitation_record.Recitation` reads them."""
        notes = self.record.facts["notes"]
        kind = self.record.facts["trainer"]["kind"]
        peeked = peek_batches(self.loader, self.orders.get("batches", 8))
        examples = collect_first_documents(self.loader.dataset, self.loader.collate_fn)
        stops = stop_ids_of_server(self.model, self.tokenizer)
        rows = self._choose_rows(examples, stops)
        vocabulary = _cut_miniature_vocabulary_to_ids(
            self.model,
            getattr(self.trainer, "ref_model", None),
            peeked,
            examples,
            rows,
            self.tokenizer,
            stops,
            notes,
        )
        # On the miniature before it is trained: a law is about what the first step will do.
        laws = law_names(self.orders.get("laws", "quick"))
        if peeked and laws:
            self._measure_laws_and_name_loss(
                ObservedData(peeked, self.loader.collate_fn, self.loader.dataset), laws
            )
        facts: dict[str, Any] = {
            "shape": _describe_miniature_and_original_size(self.model),
            "vocabulary": vocabulary,
            "rows": [],
            "loss": [],
            "stops": sorted(stops),
            "kind": kind,
        }
        # The other kinds are trained on preferences: what they learn is a margin, and no answer by heart.
        if kind != "sft":
            return facts | self._train_on_pairs_and_compare_margins(examples, stops)
        if rows:
            return facts | self._memorise_and_recite_rows(rows, stops)
        nothing = _why_nothing_recited(self.tokenizer, examples)
        notes.append(f"nothing could be recited: {nothing}")
        return facts | {"nothing": nothing}

    def rehearse_by_rewards(self) -> dict[str, Any]:
        """The facts of a training that samples its answers: no row holds what is learned, so nothing is memorised."""
        stops = stop_ids_of_server(self.model, self.tokenizer)
        into = innermost_model(self.model).get_input_embeddings()
        size = int(getattr(into, "num_embeddings", 0))
        return {
            "shape": _describe_miniature_and_original_size(self.model),
            # All ids: what is sampled may be any of them.
            "vocabulary": {"size": size, "kept": size},
            "rows": [],
            "loss": [],
            "stops": sorted(stops),
            "kind": "rewards",
            "rewards": rehearse_rewards(
                self.trainer, self.model, self.tokenizer, stops, self.deadline
            ),
        }

    def _choose_rows(self, examples: list[Example], stops: set[int]) -> list[RowToRecite]:
        """The rows to memorise; none without a tokenizer, which must read the prompts."""
        if self.tokenizer is None:
            return []
        questions = parse_first_rows(self.source_data)
        count = self.orders.get("rows", MAX_MEMORISED_ROWS)
        return choose_shortest_rows_of_different_prompts(
            examples, questions, self.tokenizer, stops, count
        )

    def _measure_laws_and_name_loss(self, seen: ObservedData, laws: tuple[str, ...]) -> None:
        """Measure these laws on the miniature, and see which function computes its loss, into the record; `keep` is
        given it after each law."""
        trainer_facts = self.record.facts["trainer"]
        trial = trial_of(
            unwrap_model(self.model),
            seen,
            self.tokenizer,
            self.trainer,
            None,
            trainer_facts["kind"],
        )
        trainer_facts["loss"] = loss_of_one_pass(trial, trainer_facts["loss"])
        outcomes = self.record.facts["laws"] = {}
        keep = partial(self.keep, self.record) if self.keep else None
        measure_laws(trial, laws, outcomes=outcomes, keep=keep)

    def _snapshot_weights_if_faults_tried(
        self,
    ) -> faults_put_into_memorised_batch.WeightSnapshot | None:
        """The weights from which each fault starts; None where no faults are tried. Taken before memorising."""
        return (
            faults_put_into_memorised_batch.snapshot_weights(self.model)
            if self.orders.get("mutate")
            else None
        )

    def _memorise_and_recite_rows(self, rows: list[RowToRecite], stops: set[int]) -> dict[str, Any]:
        """Memorise these rows and recite them; then the same with faults, where they were asked for."""
        fresh = self._snapshot_weights_if_faults_tried()
        model = self.model
        batch = _to_device(self.loader.collate_fn([row.example.row for row in rows]), model)
        learned = memorise_batch(
            model,
            TrainerLoss(self.trainer, ()),
            batch,
            until=self.deadline,
            known=lambda: _are_answer_tokens_all_likeliest(model, rows, stops),
        )
        facts = {
            "loss": learned.losses,
            "fell": learned.did_loss_fall,
            "rows": _recite_rows(model, rows, self.tokenizer, stops),
            "label_loss": label_loss(model, [row.example for row in rows]),
        }
        if fresh is not None:
            self.record.facts["mutation"] = faults_put_into_memorised_batch.measure_row_mutants(
                self.trainer,
                model,
                fresh,
                batch,
                rows,
                learned,
                self.tokenizer,
                stops,
                lambda: _recite_rows(model, rows, self.tokenizer, stops),
                self.record.facts["notes"],
                self.orders["mutate"],
            )
        return facts

    def _train_on_pairs_and_compare_margins(
        self, examples: list[Example], stops: set[int]
    ) -> dict[str, Any]:
        """Train on pairs and compare their margins; then with exchanged answers, where faults were asked for."""
        fresh = self._snapshot_weights_if_faults_tried()

        def train_pairs(loader: Any, until: float) -> dict[str, Any]:
            return rehearse_margins_of_pairs.measure_pair_margins_around_training(
                self.trainer, self.model, loader, examples, self.tokenizer, stops, until
            )

        facts = train_pairs(self.loader, self.deadline)
        if fresh is not None and facts.get("pairs"):
            self.record.facts["mutation"] = faults_put_into_memorised_batch.measure_pair_mutants(
                self.trainer,
                self.model,
                fresh,
                self.loader,
                facts,
                # Without a deadline: both runs must have as many steps.
                lambda faulty: train_pairs(faulty, float("inf")),
            )
        return facts


def _why_nothing_recited(tokenizer: Any, examples: list[Example]) -> str:
    """Why no row could be recited, and what to do."""
    if tokenizer is None:
        return "there is no tokenizer; give the Trainer processing_class=tokenizer"
    return (
        "no row holds a prompt and an answer to it"
        if examples
        else "the collator gives no input_ids"
    )


def _are_answer_tokens_all_likeliest(model: Any, rows: list[RowToRecite], stops: set[int]) -> bool:
    """Are all tokens of the answers the likeliest ones?"""
    model.eval()
    right = min(
        score_answer(model, row.trained or row.prompt, row.gold, stops).right for row in rows
    )
    model.train()
    return right == 1.0


def stop_ids_of_server(model: Any, tokenizer: Any) -> set[int]:
    """Ids at which a server stops: generation_config's and the tokenizer's."""
    generation = getattr(innermost_model(model), "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    # A list in generation_config, where a model has several.
    eos_ids = set(ids if isinstance(ids, list | tuple) else [ids])
    return {
        int(id) for id in eos_ids | {getattr(tokenizer, "eos_token_id", None)} if id is not None
    }


def _cut_miniature_vocabulary_to_ids(
    model: Any,
    reference: Any,
    peeked: list[PeekedBatch],
    examples: list[Example],
    rows: list[RowToRecite],
    tokenizer: Any,
    stops: set[int],
    notes: list[str],
) -> dict[str, Any]:
    """Cut the miniature's vocabulary to the ids that occur; the whole one where that can't be."""
    inner = innermost_model(model)
    into = inner.get_input_embeddings() if hasattr(inner, "get_input_embeddings") else None
    size = getattr(into, "num_embeddings", 0)
    ids = (
        _ids_needed_beside_those_in_rows(inner, tokenizer)
        | stops
        | _whole_numbers_in_batches(peeked)
    )
    for example in examples:
        for line, _ in example.lines:
            ids.update(line)
    for row in rows:
        ids.update(row.prompt)
    if size < MIN_VOCABULARY_PER_USED_ID * len(ids):
        return {"size": size, "kept": size}
    try:
        vocab_map = compact_vocabulary(inner, ids)
        if reference is not None:
            compact_vocabulary(innermost_model(reference), ids)
    except (ValueError, AttributeError, TypeError) as error:
        notes.append(f"the vocabulary could not be compacted ({error}): the rehearsal takes longer")
        return {"size": size, "kept": size}
    return {"size": size, "kept": len(vocab_map.ids)}


def _ids_needed_beside_those_in_rows(model: Any, tokenizer: Any) -> set[int]:
    """Ids that may occur in no row, and are needed all the same: 0, special tokens, the configuration's pad and BOS."""
    config = getattr(model, "config", None)
    named = [getattr(config, name, None) for name in ("pad_token_id", "bos_token_id")]
    special = set(getattr(tokenizer, "all_special_ids", []) or [])
    return {0} | special | {id for id in named if isinstance(id, int)}


def _whole_numbers_in_batches(peeked: list[PeekedBatch]) -> set[int]:
    """All whole numbers of the batches, masks and positions too: what is no id of theirs costs a slot only."""
    ids: set[int] = set()
    for batch in peeked:
        for value in batch.inputs.values():
            if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.numel():
                ids |= set(value.flatten().tolist())
    return ids


def _recite_rows(
    model: Any, rows: list[RowToRecite], tokenizer: Any, stops: set[int]
) -> list[dict[str, Any]]:
    """What the model answers to each row, and how that compares, as JSON."""
    limits = [min(len(row.gold), MAX_NEW_TOKENS) + SPARE_TOKENS for row in rows]
    answers = generate_greedily(model, [row.prompt for row in rows], stops, limits)
    # Where the served prompt is another than the trained one, both are asked: what the trained one recites and the
    # served one does not was lost to the prompt, not to the training.
    differing = [i for i, row in enumerate(rows) if row.trained != row.prompt and row.trained]
    again = generate_greedily(
        model, [rows[i].trained for i in differing], stops, [limits[i] for i in differing]
    )
    trained = dict(zip(differing, again, strict=True))
    return [
        _row_outcome(model, row, answers[i], trained.get(i), tokenizer, stops)
        for i, row in enumerate(rows)
    ]


def _row_outcome(
    model: Any,
    row: RowToRecite,
    answer: GreedyAnswer,
    trained: GreedyAnswer | None,
    tokenizer: Any,
    stops: set[int],
) -> dict[str, Any]:
    """How one row was recited, as JSON.

    Args:
        model: that has memorised the rows.
        row: the row.
        answer: to the served prompt.
        trained: the answer to the trained prompt; None where both prompts are the same.
        tokenizer: of transformers.
        stops: ids that end an answer.
    """
    gold = tokenizer.decode(row.gold, skip_special_tokens=True)
    after_trained = score_answer(model, row.trained or row.prompt, row.gold, stops)
    after_served = after_trained
    if row.trained != row.prompt:
        after_served = score_answer(model, row.prompt, row.gold, stops)
    also = gold if row.source is None or _is_reference_framed_by_template(gold, row) else ""
    outcome = compare_answer(answer, row.reference, tokenizer, also=also)
    again = None
    if trained is not None:
        again = compare_answer(trained, row.reference, tokenizer, also=also)
    source = _compare_answer_with_source_row(row, outcome["said"], tokenizer)
    return outcome | {
        "index": row.example.index,
        "number": source["number"],
        "kind": row.kind,
        "question": source["question"],
        "reference": row.reference.strip(),
        "field": source["field"],
        "echo": source["echo"],
        "trained": again,
        "prompt": difference_of_served_and_trained_prompt(row, tokenizer),
        "probability": [after_trained.log_probability, after_served.log_probability],
        "closed": row.closed,
        "right": after_trained.right,
        "stop_after": after_trained.stop_after,
        "stop_inside": after_trained.stop_inside,
        "supervised": _count_supervised_answer_tokens(row),
        "answer": len(row.gold),
        "ids": {
            "trained": row.prompt if row.kind == "inside" else row.trained,
            "prompt": row.prompt,
        },
        "asked": _server_request(row),
    }


def _compare_answer_with_source_row(row: RowToRecite, said: str, tokenizer: Any) -> dict[str, Any]:
    """What the user's row says of an answer: its number and question, a field that was answered instead, an echo."""
    if row.source is None:
        # The end of the prompt stands for the question.
        question = tokenizer.decode(row.trained[-SHOWN_PROMPT_TOKENS:])
        return {"number": None, "question": question, "field": None, "echo": False}
    fields = (
        name
        for name, text in row.source.others.items()
        if _answer_begins_with_other_text(said, text)
    )
    question = row.source.question
    return {
        "number": row.source.number,
        "question": question,
        "field": next(fields, None),
        "echo": len(said) > MIN_ECHO_CHARS
        and _answer_repeats_question_or_its_start(question, said),
    }


def _count_supervised_answer_tokens(row: RowToRecite) -> int | None:
    """Tokens of the answer that are in the loss; None where the row has no labels."""
    labels, start = row.example.labels, len(row.trained)
    if labels is None:
        return None
    return sum(label != -100 for label in labels[start : start + len(row.gold)])


def _server_request(row: RowToRecite) -> dict[str, Any] | None:
    """What a server is asked for this row, as JSON; None where it is no chat."""
    source = row.source
    if source is None or not source.chat or not source.messages or row.kind == "text":
        return None
    request = {"messages": source.messages, "tools": source.tools, "settings": source.settings}
    return dict(json.loads(json.dumps(request, default=str)))


def _is_reference_framed_by_template(gold: str, row: RowToRecite) -> bool:
    """Is the reference in the row's answer, with nothing but the template's own text before it?

    `gold` is the answer's tokens as text. Where it begins with text of another column, a model that recites it answers
    more than the reference, so it does not count as a second spelling of that.
    """
    before, reference, _ = gold.partition(row.reference.strip())
    assert row.source is not None
    texts = [row.source.question, *row.source.others.values()]
    return bool(reference) and not any(text.strip() and text.strip() in before for text in texts)


def _answer_begins_with_other_text(answer: str, text: str) -> bool:
    """Does an answer begin with this text of the row, which is not its answer?"""
    return bool(text.strip()) and answer.startswith(text.strip())


def _answer_repeats_question_or_its_start(question: str, answer: str) -> bool:
    """Does an answer repeat the question, up to white space, or a beginning of it?"""
    question, answer = " ".join(question.split()), " ".join(answer.split())
    return len(question) > MIN_ECHO_CHARS and (
        answer.startswith(question) or question.startswith(answer)
    )


def _to_device(batch: Any, model: Any) -> dict[str, Any]:
    """A batch with its tensors on the model's device."""
    device = next(model.parameters()).device
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in dict(batch).items()}


def _describe_miniature_and_original_size(model: Any) -> dict[str, Any]:
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
            name: build_miniatures_instead_of_models.real_config.get("config", {}).get(name)
            for name in ("num_hidden_layers", "hidden_size")
        },
    }

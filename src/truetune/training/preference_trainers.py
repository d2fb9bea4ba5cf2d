"""The trainers of DPO, ORPO and KTO: TRL's own, fed with our ids, and proved to train on them.

Their own preparation of rows is switched off, and before the first step the first batches are compared with the rows,
and the policy with its reference. The trade-off: private methods of TRL are overridden, for a range of its releases,
where a trainer of our own would have to be compared with the papers.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import datasets
import pyarrow as arrow
import torch
import transformers
from packaging.specifiers import SpecifierSet

from truetune.errors import TruetuneError, UsageError
from truetune.probe.peek_batches import peek_batches
from truetune.probe.temporary_data_loader import temporary_data_loader_and_tokenizer
from truetune.render.rendering import IGNORED
from truetune.training.load_encoded_held_out_and_packed_rows import TrainingData
from truetune.training.preference_rows import PreferenceRows
from truetune.training.prepare_model import PreparedModel
from truetune.training.trainer_arguments import make_trainer_arguments
from truetune.training.training_recipe import Recipe, trainer_arguments_of_recipe
from truetune.training.turn_off_all_dropout import turn_off_all_dropout

# Tried with these; the columns that a collator reads are no promise of TRL's, and the batches are
# proved at each start anyway.
SUPPORTED_TRL = SpecifierSet(">=1.16,<2")
"""Releases of TRL whose trainers take rows of ids as they are given here"""
TRL_NEEDED = (
    f"DPO, ORPO and KTO need trl{SUPPORTED_TRL}, whose trainers take rows of ids:"
    f" pip install 'trl{SUPPORTED_TRL}'"
)

try:
    import trl
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer
    from trl.trainer.kto_config import KTOConfig
    from trl.trainer.kto_trainer import KTOTrainer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        # TRL warns that this part is experimental; the proof of the batches is what we rely on.
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer
except ImportError as error:
    raise UsageError(f"{TRL_NEEDED} ({error})") from None

# Chosen, not measured: a wrong collator shows in the first batch; some go wrong with the length of
# rows only, and four batches have a few lengths.
PROVED_BATCHES = 4
"""Batches whose ids and labels are compared with the rows"""
# Chosen, not measured: two passes of the same weights differ by the rounding of their kernels,
# which grows with the answer; dropout, or an adapter that starts beside zero, moves every token.
# Half of it may refuse long answers in 16 bits.
REFERENCE_TOLERANCE_NATS = 0.01
"""Nats that the log-probability of an answer may differ at the start between policy and reference"""
ArgumentsByName = dict[str, Any]
"""Arguments of a trainer, by name"""
IdsAndLabels = tuple[list[int], list[int]]
"""Ids and labels, without padding"""


class DPOOnIds(DPOTrainer):
    """TRL's DPO on rows of ids."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Give the dataset back as it is: the rows are ids already."""
        return dataset


class KTOOnIds(KTOTrainer):
    """TRL's KTO on rows of ids."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Give the dataset back as it is: the rows are ids already."""
        return dataset


class ORPOOnIds(ORPOTrainer):
    """TRL's ORPO on rows of ids.

    The likelihood is that of the chosen answer; TRL's is that of its prompt too.
    """

    def concatenated_forward(self, model: Any, batch: Any) -> Any:
        """Run the model on chosen and rejected answers at once: their mean log-probabilities, their logits, the loss of
        the chosen answers, and the auxiliary loss of a mixture of experts.
        """
        inputs = self.concatenated_inputs(
            batch, padding_value=self.padding_value, device=self.accelerator.device
        )
        # Only where asked for: most models do not take the argument.
        routed = {"output_router_logits": True} if self.aux_loss_enabled else {}
        mask = inputs["concatenated_attention_mask"]
        outputs = model(
            inputs["concatenated_input_ids"], attention_mask=mask, use_cache=False, **routed
        )
        labels, logits = inputs["concatenated_labels"], outputs.logits
        learned = labels[:, 1:] != IGNORED
        each = torch.nn.functional.cross_entropy(
            logits[:, :-1][learned].float(), labels[:, 1:][learned], reduction="none"
        )
        # Log-probabilities of an answer are a sum over its tokens; positions come in order of their
        # rows.
        sums = each.new_zeros(len(labels)).index_add(0, learned.nonzero()[:, 0], -each)
        # ORPO's odds are of the mean over tokens, so that long answers are not unlikely by their
        # length alone.
        means, count = sums / learned.sum(1), len(batch["chosen_labels"])
        loss = -sums[:count].sum() / learned[:count].sum()
        outcome = (means[:count], means[count:], logits[:count, :-1], logits[count:, :-1], loss)
        return (*outcome, outputs.aux_loss) if self.aux_loss_enabled else outcome


class ORPORows:
    """Pairs with the columns of ORPO's collator; `map`, which would make them, has nothing left to do."""

    def __init__(self, pairs: PreferenceRows) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        row = self.pairs[number]
        columns: dict[str, list[int]] = {}
        for side in ("chosen", "rejected"):
            ids, labels = join_prompt_and_answer_with_labels(row["prompt_ids"], row[f"{side}_ids"])
            columns |= {
                f"{side}_input_ids": ids,
                f"{side}_attention_mask": [1] * len(ids),
                f"{side}_labels": labels,
            }
        return columns

    def map(self, *_: Any, **__: Any) -> ORPORows:
        """Map nothing: the same rows, whatever is asked."""
        return self


def make_preference_trainer(recipe: Recipe, ready: PreparedModel, data: TrainingData) -> Any:
    """The trainer of a preference method, proved to train on our ids, from a reference that is the
    policy at its start.

    Args:
        recipe: the filled settings; the method is dpo, orpo or kto.
        ready: tokenizer and model.
        data: rows of `preference_rows`.

    Raises:
        UsageError: the installed TRL does not fit, or does something else with the rows.
        SpecError: arguments that it does not know.
    """
    if trl.__version__ not in SUPPORTED_TRL:
        raise UsageError(f"{TRL_NEEDED} (here is {trl.__version__})")
    # With dropout the policy differs from its reference before any step, and rewards measure noise.
    if recipe.training.disable_dropout is not False:
        turn_off_all_dropout(ready.model)
    rows, held_out = data.train, data.held_out
    assert isinstance(rows, PreferenceRows)
    assert isinstance(held_out, PreferenceRows | None)
    if recipe.method != "orpo":
        _refuse_new_token_rows_past_adapter(ready)
    arguments = trainer_arguments_of_recipe(recipe, evaluates=held_out is not None)
    try:
        trainer = BUILDERS[recipe.method](recipe, ready, arguments, rows, held_out)
        _check_first_batches_match_rows(trainer, rows)
        if recipe.method != "orpo" and recipe.training.reference is None:
            _check_reference_equals_policy(trainer)
    except TruetuneError:
        raise
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"training.method {recipe.method}: {error}") from None
    return trainer


def make_dpo_trainer(
    recipe: Recipe,
    ready: PreparedModel,
    arguments: ArgumentsByName,
    rows: PreferenceRows,
    held_out: PreferenceRows | None,
) -> Any:
    """A DPO trainer. The rows are short enough, so its collator cuts nothing."""
    return DPOOnIds(
        ref_model=_make_reference_model_if_needed(recipe, ready),
        # The encoder has left out what is too long; TRL's own limit cuts pairs from one side,
        # without a word.
        args=make_trainer_arguments(DPOConfig, arguments | {"max_length": None}),
        train_dataset=rows.as_dataset(),
        eval_dataset=held_out and held_out.as_dataset(),
        **_arguments_common_to_trainers(ready),
    )


def make_orpo_trainer(
    recipe: Recipe,
    ready: PreparedModel,
    arguments: ArgumentsByName,
    rows: PreferenceRows,
    held_out: PreferenceRows | None,
) -> Any:
    """An ORPO trainer. It has no reference model."""
    return ORPOOnIds(
        args=make_trainer_arguments(ORPOConfig, arguments),
        train_dataset=ORPORows(rows),
        eval_dataset=held_out and ORPORows(held_out),
        **_arguments_common_to_trainers(ready),
    )


def make_kto_trainer(
    recipe: Recipe,
    ready: PreparedModel,
    arguments: ArgumentsByName,
    rows: PreferenceRows,
    held_out: PreferenceRows | None,
) -> Any:
    """A KTO trainer. Its collator cuts an answer to another question where no answer in the batch
    is short enough for that.
    """
    if len(rows) < 2:
        raise UsageError("KTO compares rows with each other; it needs at least two")
    args = make_trainer_arguments(KTOConfig, arguments)
    return KTOOnIds(
        ref_model=_make_reference_model_if_needed(recipe, ready),
        args=args,
        train_dataset=_add_kl_answers(rows, args.per_device_train_batch_size, args.max_length),
        eval_dataset=held_out
        and _add_kl_answers(held_out, args.per_device_eval_batch_size, args.max_length),
        **_arguments_common_to_trainers(ready),
    )


BUILDERS: Mapping[
    str,
    Callable[[Recipe, PreparedModel, ArgumentsByName, PreferenceRows, PreferenceRows | None], Any],
] = {
    "dpo": make_dpo_trainer,
    "orpo": make_orpo_trainer,
    "kto": make_kto_trainer,
}


def join_prompt_and_answer_with_labels(prompt: list[int], answer: list[int]) -> IdsAndLabels:
    """The ids of a prompt with its answer, and the labels, which are on the answer alone."""
    return prompt + answer, [IGNORED] * len(prompt) + answer


def _arguments_common_to_trainers(ready: PreparedModel) -> dict[str, Any]:
    """What all three trainers take."""
    return {"model": ready.model, "processing_class": ready.tokenizer, "peft_config": ready.peft}


def _add_kl_answers(rows: PreferenceRows, batch: int, limit: int) -> Any:
    """The dataset, with the answer that KTO's KL term takes for one to another question in each
    row.
    """
    dataset = rows.as_dataset()
    others = (
        dataset.data.table["completion_ids"]
        .combine_chunks()
        .take(arrow.array(rows.choose_kl_rows(batch, limit)))
    )
    return datasets.Dataset(dataset.data.table.append_column("KL_completion_ids", others))


def _refuse_new_token_rows_past_adapter(ready: PreparedModel) -> None:
    """Raise UsageError where new tokens would be trained by a trainer that reads the head's weights past the
    adapter."""
    config = ready.peft or getattr(ready.model, "peft_config", {}).get("default")
    if getattr(config, "trainable_token_indices", None):
        raise UsageError(
            "single rows of the embedding (new tokens, lora.trainable_token_indices) can't be"
            " trained by DPO and KTO: TRL takes the head's weights as they were. Teach new tokens"
            " by SFT or ORPO first, or set lora.modules_to_save: [embed_tokens, lm_head]"
        )


def _make_reference_model_if_needed(recipe: Recipe, ready: PreparedModel) -> Any:
    """The reference model; None where the policy without its adapter is one, or its values are computed beforehand."""
    training = recipe.training
    if training.reference is not None:
        settings = {
            "dtype": ready.model.dtype,
            "attn_implementation": ready.model.config._attn_implementation,
        }
        return transformers.AutoModelForCausalLM.from_pretrained(training.reference, **settings)
    adapts = ready.peft is not None or hasattr(ready.model, "peft_config")
    # A second model doubles the memory: with an adapter, the policy with its adapter switched off
    # is the reference.
    return None if adapts or training.precompute_ref_log_probs else copy.deepcopy(ready.model)


def _check_first_batches_match_rows(trainer: Any, rows: PreferenceRows) -> None:
    """Raise UsageError where the first batches are not the ids of the rows, with a label on the answers alone."""
    with temporary_data_loader_and_tokenizer(trainer) as (loader, _):
        batches = peek_batches(loader, PROVED_BATCHES)
    for number, batch in enumerate(batches):
        expected = _expected_batch_lines(trainer, rows, batch)
        trained = [
            one
            for side in ("", "chosen_", "rejected_", "KL_")
            for one in _unpadded_batch_lines_of_side(batch.inputs, side)
        ]
        # Exact equality: a release of TRL that adds a BOS, cuts a token or moves a mask would
        # train something else, and its loss would look as good.
        if trained != expected:
            raise UsageError(
                f"batch {number} of {type(trainer).__mro__[1].__name__} (trl {trl.__version__}) is"
                f" not made of the ids of its rows: {_describe_first_difference(trained, expected)}; nothing was"
                " trained. Please report this"
            )


def _expected_batch_lines(trainer: Any, rows: PreferenceRows, batch: Any) -> list[IdsAndLabels]:
    """What a batch must hold by its rows: all chosen (or only) answers, then the rejected ones, then those of KTO's
    KL term."""
    limit = trainer.args.max_length
    batch_rows = [rows[i] for i in batch.indices or ()]
    names = ("chosen_ids", "rejected_ids", "completion_ids")
    sides = [name for name in names if name in batch_rows[0]]
    expected = [
        join_prompt_and_answer_with_labels(row["prompt_ids"], row[side])
        for side in sides
        for row in batch_rows
    ]
    if "KL_input_ids" in batch.inputs:
        others = rows.choose_kl_rows(trainer.args.per_device_train_batch_size, limit)
        answers = [rows[others[i]]["completion_ids"] for i in batch.indices or ()]
        for row, answer in zip(batch_rows, answers, strict=True):
            ids, labels = join_prompt_and_answer_with_labels(row["prompt_ids"], answer)
            # The neighbour's answer was never fitted to this prompt, so the collator cuts it.
            expected.append((ids[:limit], labels[:limit]))
    return expected


def _unpadded_batch_lines_of_side(inputs: Mapping[str, Any], side: str) -> list[IdsAndLabels]:
    """The rows of one side of a batch, without padding; none where the batch has no such side."""
    if f"{side}input_ids" not in inputs:
        return []
    ids, attended = inputs[f"{side}input_ids"], inputs[f"{side}attention_mask"].bool()
    labels = inputs.get(f"{side}labels")
    if labels is None:
        labels = ids.where(inputs[f"{side}completion_mask"].bool(), IGNORED)
    read = attended | (labels != IGNORED)
    return [(i[r].tolist(), own[r].tolist()) for i, own, r in zip(ids, labels, read, strict=True)]


def _describe_first_difference(trained: list[IdsAndLabels], expected: list[IdsAndLabels]) -> str:
    """Where trained and expected lines first differ, for the message."""
    if len(trained) != len(expected):
        return f"{len(trained)} lines, expected {len(expected)}"
    number = next(
        i for i, (one, other) in enumerate(zip(trained, expected, strict=True)) if one != other
    )
    what = "ids" if trained[number][0] != expected[number][0] else "labels"
    return f"{what} of line {number} are {trained[number]}, expected {expected[number]}"


def _check_reference_equals_policy(trainer: Any) -> None:
    """Raise UsageError where an answer is more or less likely to the policy than to its reference before any step."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return
    metrics, tokens, mode = (
        copy.deepcopy(trainer._metrics),
        trainer._total_train_tokens,
        trainer.model.training,
    )
    with (
        temporary_data_loader_and_tokenizer(trainer) as (loader, _),
        torch.no_grad(),
        trainer.compute_loss_context_manager(),
    ):
        inputs = trainer._prepare_inputs(peek_batches(loader, 1)[0].inputs)
        # In evaluation mode, dropout that the user kept on purpose would be off, and is not what is
        # to be found here. With dropout disabled, training mode shows dropout that stayed on.
        trainer.model.train(trainer.args.disable_dropout)
        loss = float(trainer.compute_loss(trainer.model, inputs))
        logged = trainer._metrics["train" if trainer.args.disable_dropout else "eval"]
        rewards = [
            logged[f"rewards/{side}"][-1]
            for side in ("chosen", "rejected")
            if logged[f"rewards/{side}"]
        ]
    trainer.model.train(mode)
    trainer._metrics, trainer._total_train_tokens = metrics, tokens
    # A reward is beta times the difference of log-probabilities.
    off = max(abs(reward) for reward in rewards) / trainer.beta
    # Of equal models DPO's loss is -log sigmoid(0) = ln 2, exactly; other losses have other values
    # there.
    plain = getattr(trainer, "loss_types", ()) == ["sigmoid"] and not trainer.label_smoothing
    if not off <= REFERENCE_TOLERANCE_NATS or (
        plain and abs(loss - math.log(2)) > REFERENCE_TOLERANCE_NATS
    ):
        raise UsageError(
            f"before the first step policy and reference differ by {off:.3g} nats an answer (loss"
            f" {loss:.4f}): rewards would be measured from another model. Dropout that stays on, or"
            " an adapter that changes the model before it is trained (lora.init_lora_weights),"
            " does that"
        )

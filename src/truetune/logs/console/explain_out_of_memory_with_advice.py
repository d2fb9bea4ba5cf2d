"""Explains how a run came to use up the memory of its GPU, with evidence and advice that leaves out
what is in use already.

What the output does not print, the script or the settings beside the log say: advice that hangs on them ("turn it on,
unless it is") becomes a statement with the line. Where neither says it, the advice stays conditional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from truetune.logs.console.failed_tensor_is_whole_model import (
    advice_on_fsdp_unit,
    bytes_per_weight_of_tensor,
    evidence_of_fsdp_unit,
    fsdp_unit_setting,
)
from truetune.logs.console.out_of_memory_causes import (
    ATTENTION_MASK,
    BEHIND_EVALUATION,
    EAGER_ATTENTION,
    ENGINE_GRAPHS,
    EVALUATION_BATCH,
    GRADIENT_CLIPPING,
    HARNESS_BATCH,
    KEPT_LOGITS,
    KEPT_OUTPUTS,
    LOADED_AFTER_TRAINING,
    LOGITS_CAST,
    LOSS_LOGITS,
    MODEL_LOADING,
    OPTIMIZER_STATES,
    OWN_EVALUATION,
    WEIGHTS_COPIED,
    MemoryCause,
    failed_in_training_step,
    failed_on_float32_logits,
    passes_layer_without_checkpoint,
)
from truetune.logs.console.parse_tracebacks import Frame
from truetune.logs.console.picture_tokens_by_printed_shapes import (
    MIN_PICTURE_TOKENS,
    TOKEN_SIDES,
    USUAL_PICTURE_TOKENS,
    PictureTokens,
)
from truetune.logs.console.printed_settings import PrintedSettings
from truetune.logs.console.row_length_by_failed_tensor_size import (
    GIB,
    TensorShape,
    logits_shape_of_size,
    mask_shape_of_size,
)
from truetune.logs.console.weights_at_out_of_memory_by_files_beside_log import (
    WeightsOnGpu,
    evidence_of_inference_server_gpu_share,
    is_setting_of_failed_run,
)
from truetune.logs.facts_in_files_beside_log import (
    ENGINE_SHARE,
    FILLED_TO_LIMIT,
    KEPT_BY_STEPS,
    LENGTH_LIMIT,
    NOTHING_BESIDE,
    PICTURES_WITHOUT_LIMIT,
    RECOMPUTED_BY_LAUNCHER,
    ROWS_BY_LENGTH,
    FilesBeside,
    SettingBeside,
)
from truetune.logs.gpu_memory_curve import find_memory_curve, first_and_last_if_growing
from truetune.logs.run_log import Curve, RunLog

MAX_ADAPTER_SHARE = 0.04
"""Trained share from which an adapter holds whole embeddings: LoRA on all linear layers trains 0.3 to 3 % at ranks of
8 to 128, an embedding and a head of 128,000 tokens add 10 % and more to an 8-billion model"""
FULL_TRAINED_SHARE = 0.9
"""Trained share of a full fine-tune"""
MIN_FITTED_STEPS = 10
"""Steps that fitted from which the first batches, and the optimizer's states, are no cause any more. Chosen, not
measured: the states are made at step 1, kernels are compiled in the first few"""
LATE_CAUSES = (LOSS_LOGITS, LOGITS_CAST, EAGER_ATTENTION, ATTENTION_MASK)
"""Causes that a batch of longer rows brings"""
OF_EVALUATION = (EVALUATION_BATCH, OWN_EVALUATION, KEPT_LOGITS, KEPT_OUTPUTS)
"""Causes in an evaluation, where neither the training's batch nor checkpointing counts"""
UNPLANNED = (
    LOADED_AFTER_TRAINING.name,
    HARNESS_BATCH.name,
    ENGINE_GRAPHS.name,
    WEIGHTS_COPIED.name,
)
"""Causes that an estimate of the training knows nothing of"""
LEAST_LIMIT = 1_024
"""Tokens below which no limit is advised. Chosen, not measured: it leaves room for longer rows, and costs little"""
USUAL_LIMIT = 2_048
"""Tokens that are enough for most rows"""
VOCABULARY_OF_PICTURES = 151_936
"""Of the models whose processors keep the size of pictures; that of the larger ones is 0.1 % more"""
PAIR_FILE = re.compile(r"/(?:dpo|cpo|orpo|simpo)_trainer\.py$")
"""Trainers that put a chosen and a rejected answer into one pass (KTO's rows are single answers)"""
MODE_OF_EVALUATION = "left_in_eval_mode"
PADDED_WITHOUT_LIMIT = "padded_without_limit"
KEPT_BY_EVALUATION = "kept_by_evaluation"
SECOND_MODEL = "second_model_loaded"


def does_trained_share_exceed_adapter(settings: PrintedSettings) -> bool:
    """Does the printed share of trained parameters show that more than an adapter's matrices is
    trained, such as embeddings?
    """
    return settings.share is not None and MAX_ADAPTER_SHARE < settings.share < FULL_TRAINED_SHARE


MAX_STEPS_APART = 25
"""Steps by which two logs of one run may end apart: loggers write every tenth or fiftieth, a bar each"""


def memory_curve_of_run_or_sibling(log: RunLog) -> Curve:
    """The memory curve of a run by its own log, otherwise by another log in its folder that ends at
    the same step.
    """
    own = find_memory_curve(log.curves).curve
    if own:
        return own
    done = max(log.last_step, float(log.output.done) if log.output is not None else 0.0)
    for run in log.files_beside.runs:
        if run.memory and abs(run.steps - done) <= MAX_STEPS_APART:
            steps, values = zip(*run.memory, strict=True)
            return Curve(np.array(steps), np.array(values))
    return own


def failed_right_after_first_evaluation(log: RunLog, frames: Sequence[Frame]) -> bool:
    """Did a step of the training fail right behind the first evaluation of a run whose steps had fitted before?

    After later evaluations too: a run that has trained on behind one is none whose mode was left, and what an
    evaluation keeps it keeps the first time.
    """
    evaluated = log.curve("eval_loss")
    if (
        not evaluated
        or not failed_in_training_step(frames)
        or first_and_last_if_growing(memory_curve_of_run_or_sibling(log))
    ):
        return False
    first, last = float(evaluated.step[0]), float(evaluated.step[-1])
    loss = log.curve("loss")
    trained_to = float(loss.step[-1]) if loss else 0.0
    done = float(log.output.done) if log.output is not None else 0.0
    if first != last or last < 1 or not loss:
        return False
    return trained_to <= last and done <= last + 1


LEAST_BYTES = 6
"""Of a trained parameter: weight and gradient in 16 bits, two states of AdamW in 8 bits"""


@dataclass(frozen=True, slots=True)
class MemoryStory:
    """How a run came to use up the memory of its GPU."""

    cause: MemoryCause | None
    """What the traceback shows"""
    settings: PrintedSettings
    memory: Curve
    """GiB in use by step, where the log has it"""
    step: float
    """Steps that fitted"""
    pieces: float | None = None
    """GiB that PyTorch holds in pieces, where that is more than the tensor needs that failed"""
    asked: float | None = None
    """GiB of the tensor that failed"""
    beside: FilesBeside = NOTHING_BESIDE
    """What scripts and settings say that were given with the log"""
    frames: tuple[Frame, ...] = ()
    """Of the traceback"""
    pictures: PictureTokens | None = None
    """The batch of pictures whose shapes the output prints"""
    capacity: float | None = None
    """GiB of the GPU"""
    gpu_number: str = ""
    """Of the GPU that is full, as the process counts them"""
    log_file: str = ""

    @property
    def rows_are_mostly_pictures(self) -> bool:
        """Are most tokens of a row those of pictures, where rows are what needed the memory?"""
        is_by_rows = self.cause is None or self.cause.by_rows
        return is_by_rows and (
            self.pictures is not None or self._row_length_if_pictures_unlimited() is not None
        )

    def _row_length_if_pictures_unlimited(self) -> int | None:
        """Tokens of a row by the logits that failed, if nothing limits pictures and no text is so
        long.
        """
        unlimited = self.beside.setting(PICTURES_WITHOUT_LIMIT)
        if unlimited is None or self.cause not in (LOSS_LOGITS, LOGITS_CAST) or self.asked is None:
            return None
        width = 4 if failed_on_float32_logits(self.frames) else 2
        tokens = self.asked * GIB / (VOCABULARY_OF_PICTURES * width * (self.batch or 1))
        return 10 * round(tokens / 10) if tokens >= MIN_PICTURE_TOKENS else None

    @property
    def weights(self) -> WeightsOnGpu:
        """The weights of the run on its GPU: the same run, as far as its weights matter."""
        return WeightsOnGpu(
            self.cause, self.beside, self.capacity, self.gpu_number, self.frames, self.log_file
        )

    @property
    def value_that_loop_keeps_of_each_step(self) -> SettingBeside | None:
        """What the loop beside the log keeps of each step, if steps had fitted before; None
        otherwise.
        """
        by_rows = self.cause is None or self.cause.by_rows
        kept = self.beside.settings_named(KEPT_BY_STEPS)
        found = next((one for one in kept if is_setting_of_failed_run(one, self.frames)), None)
        return found if by_rows and self.step >= MIN_FITTED_STEPS else None

    @property
    def setting_that_orders_rows_by_length(self) -> SettingBeside | None:
        """The setting that orders rows by length, so that the longest are in the first batch, if that one
        failed; None otherwise.
        """
        by_rows = self.cause is None or self.cause in LATE_CAUSES
        is_first = self.step < MIN_FITTED_STEPS and failed_in_training_step(self.frames)
        setting_beside = self.beside.setting(ROWS_BY_LENGTH)
        is_here = setting_beside is not None and is_setting_of_failed_run(
            setting_beside, self.frames
        )
        return setting_beside if by_rows and is_first and is_here else None

    @property
    def does_forward_pass_hold_preference_pairs(self) -> bool:
        """Does a forward pass hold a chosen and a rejected answer for each row of the batch (DPO
        and the like)?
        """
        return any(
            PAIR_FILE.search(frame.file) or frame.function == "concatenated_forward"
            for frame in self.frames
        )

    @property
    def rows_per_forward_pass(self) -> int | None:
        """Rows of one forward pass; None where the batch is not known."""
        batch = self.batch
        return (
            2 * batch
            if batch is not None and self.does_forward_pass_hold_preference_pairs
            else batch
        )

    @property
    def batch(self) -> int | None:
        """The batch size: rows of the training on a device, as the output prints them or a file beside it sets
        them; None if not known.
        """
        return self.settings.batch or _number_of_setting(
            self.beside.setting("per_device_train_batch_size")
        )

    @property
    def failed_tensor_shape(self) -> TensorShape | None:
        """The shape of the tensor that failed, if its size tells it; None otherwise."""
        if self.cause is ATTENTION_MASK:
            return mask_shape_of_size(self.asked, self.rows_per_forward_pass)
        if self.cause in (LOSS_LOGITS, LOGITS_CAST):
            limits = {one.value for one in self.beside.settings_named(LENGTH_LIMIT)}
            return logits_shape_of_size(
                self.asked,
                self.rows_per_forward_pass,
                is_float32=failed_on_float32_logits(self.frames),
                limits=[one for one in limits if type(one) is int],
            )
        return None

    @property
    def length_limit_that_rows_reach(self) -> SettingBeside | None:
        """The length limit that rows reach by the failed tensor's shape; None if no file sets such
        a one.
        """
        length = self.failed_tensor_shape.length if self.failed_tensor_shape is not None else None
        return next(
            (one for one in self.beside.settings_named(LENGTH_LIMIT) if one.value == length), None
        )

    @property
    def settings_that_fill_rows_to_limit(self) -> tuple[SettingBeside, ...]:
        """The settings that make every row as long as that limit (packing, padding), in the file
        that sets it.
        """
        limit = self.length_limit_that_rows_reach
        setting_besides = self.beside.settings_named(FILLED_TO_LIMIT)
        return tuple(one for one in setting_besides if limit is not None and one.file == limit.file)

    @property
    def rows_have_context_length(self) -> bool:
        """Have rows the length of the model's whole context, by the size of the tensor that failed?"""
        return (
            self.failed_tensor_shape is not None
            and self.failed_tensor_shape.has_model_context_length
        )

    @property
    def bytes_per_weight_of_whole_model(self) -> int | None:
        """Bytes per weight of the whole model, if the tensor that failed has the size of all weights together;
        None otherwise.
        """
        return bytes_per_weight_of_tensor(self.asked, self.beside)

    @property
    def fsdp_whole_model_unit_setting(self) -> SettingBeside | None:
        """The setting by which FSDP gathers the whole model at once, if this run shows FSDP; None
        otherwise.
        """
        in_fsdp = any("torch/distributed/fsdp" in frame.file for frame in self.frames)
        is_shown = in_fsdp or self.bytes_per_weight_of_whole_model is not None
        return fsdp_unit_setting(self.beside) if is_shown else None

    @property
    def would_more_tensors_follow_failed_one(self) -> bool:
        """Would more tensors follow the one that failed, so that room for this one alone is not
        enough?
        """
        grows = (
            first_and_last_if_growing(self.memory) is not None
            or self.value_that_loop_keeps_of_each_step is not None
        )
        return grows or (self.cause is not None and not self.cause.by_rows)

    @property
    def failed_after_many_steps(self) -> bool:
        """Did many steps fit, so that the batch which failed was larger than those before?"""
        by_rows = self.cause is None or self.cause in LATE_CAUSES
        if (
            self.rows_have_context_length
            or self.settings_that_fill_rows_to_limit
            or self.value_that_loop_keeps_of_each_step is not None
        ):
            return False
        return (
            self.step >= MIN_FITTED_STEPS
            and by_rows
            and first_and_last_if_growing(self.memory) is None
        )

    @property
    def gib_of_training_states_exceeding_gpu(self) -> float | None:
        """GiB of weights, gradients and optimizer states, if they alone are more than the GPU; None
        if that is not sure.
        """
        settings, capacity = self.settings, self.capacity
        if settings.trained is None or capacity is None or settings.sharded:
            return None
        least = settings.trained * LEAST_BYTES / GIB
        return least if least > capacity else None

    @property
    def is_fragmented(self) -> bool:
        """Is there room enough, in pieces that are each too small?"""
        return self.pieces is not None and not self.would_more_tensors_follow_failed_one

    def evidence(self) -> Iterator[str]:
        """What the traceback, the output and the files prove, one line each."""
        grown = first_and_last_if_growing(self.memory)
        if grown is not None:
            steps = float(np.ptp(self.memory.finite().step))
            yield (
                f"memory in use grows from {grown[0]:.2f} to {grown[1]:.2f} GiB over {steps:,.0f}"
                f" steps, by {(grown[1] - grown[0]) / steps * 1024:.3g} MiB a step: something of"
                " each step is kept on the GPU, and the line that failed is only where it was full"
            )
        elif self.cause is not None and self.value_that_loop_keeps_of_each_step is None:
            yield f"what needed the memory: {self.cause.cause}"
        yield from self.weights.evidence()
        yield from evidence_of_inference_server_gpu_share(
            self.cause, self.beside.setting(ENGINE_SHARE), self.capacity
        )
        yield from self._evidence_of_row_length()
        yield from self._evidence_of_batch_beyond_set_rows()
        yield from evidence_of_fsdp_unit(
            self.asked,
            self.bytes_per_weight_of_whole_model,
            self.fsdp_whole_model_unit_setting,
            self.beside,
        )
        yield from self._evidence_of_script_causes()
        if self.failed_after_many_steps and self.is_fragmented:
            yield (
                f"{self.step:,.0f} steps fitted before: rows of many lengths leave pieces that later batches"
                " can't use"
            )
        elif self.failed_after_many_steps:
            yield (
                f"{self.step:,.0f} steps fitted before: most likely the batch that failed has longer rows"
                " than those, one row many times as long as the others"
            )
        settings = self.settings
        if does_trained_share_exceed_adapter(settings) and settings.share is not None:
            yield (
                f"{settings.trained:,} parameters are trained, {settings.share:.1%} of all: an"
                " adapter has 0.1 to 3 %, so embeddings or the head are trained whole"
                " (modules_to_save, lora_modules_to_save, additional_target)"
            )

    def _evidence_of_batch_beyond_set_rows(self) -> Iterator[str]:
        """Evidence of what the batch that failed holds besides the rows that are set: pairs, the longest rows,
        what steps keep.
        """
        batch, by_length, kept = (
            self.batch,
            self.setting_that_orders_rows_by_length,
            self.value_that_loop_keeps_of_each_step,
        )
        if (
            self.does_forward_pass_hold_preference_pairs
            and batch is not None
            and self.cause in LATE_CAUSES
        ):
            yield (
                f"chosen and rejected answers go through the model together: {batch} pairs are {2 * batch} rows,"
                " padded to the longest of both"
            )
        if by_length is not None:
            yield (
                f"{by_length.text} ({by_length.place}) puts the longest rows into one batch, and that batch comes first"
            )
        if kept is not None:
            yield f"{kept.place}: {kept.text} (see {kept.value}), which fills the GPU step by step"

    def _evidence_of_row_length(self) -> Iterator[str]:
        """Evidence of the length of the rows, by the size of the tensor."""
        if self.rows_are_mostly_pictures:
            yield from self._evidence_of_pictures()
            return
        shape = self.failed_tensor_shape
        if shape is None:
            return
        yield f"{self.asked:.2f} GiB is {shape.text}: rows of {shape.length:,} tokens"
        limit = self.length_limit_that_rows_reach
        if limit is not None:
            yield f"{shape.length:,} is {limit.key} ({limit.place})" + self._describe_row_filling()
        elif self._is_longer_than_any_counted_row(shape.length):
            yield (
                f"the longest row has {self.settings.longest:,} tokens: packing, or padding to the limit of the"
                " settings (sequence_len, cutoff_len, max_length), fills rows"
            )
        elif shape.has_model_context_length:
            padded = self.beside.setting(PADDED_WITHOUT_LIMIT)
            where = f" ({padded.place}: {padded.text})" if padded is not None else ""
            yield (
                f"{shape.length:,} is a model's whole context (model_max_length): rows are padded to it{where}, or"
                " nothing cuts them"
            )

    def _evidence_of_pictures(self) -> Iterator[str]:
        """Evidence that pictures make the length of rows, and what leaves them so large."""
        if self.pictures is not None:
            printed = self.pictures
            yield (
                f"{printed}: pixel_values {printed.shape} are four patches a token (line {printed.line} of the output)"
            )
        else:
            yield (
                f"{self.asked:.2f} GiB of logits over a vocabulary of {VOCABULARY_OF_PICTURES:,} is rows of about"
                f" {self._row_length_if_pictures_unlimited():,} tokens"
            )
        for setting in self.beside.settings_named(PICTURES_WITHOUT_LIMIT):
            sizes = f"; {setting.value}" if setting.value else ""
            yield f"{setting.place}: {setting.text}{sizes}"

    def _is_longer_than_any_counted_row(self, length: int) -> bool:
        """Does the trainer's own count say that no row comes near this length?"""
        longest = self.settings.longest
        return longest is not None and 2 * longest <= length

    def _describe_row_filling(self) -> str:
        """A phrase on what fills rows to the limit, and how long they are themselves."""
        if not self.settings_that_fill_rows_to_limit:
            return ""
        by = " and ".join(
            f"{one.text} ({one.place})" for one in self.settings_that_fill_rows_to_limit
        )
        verb = "fill" if len(self.settings_that_fill_rows_to_limit) > 1 else "fills"
        lengths = self._describe_longest_row()
        return f": {by} {verb} each row of a batch to it" + (
            f", though {lengths}" if lengths else ""
        )

    def _describe_longest_row(self) -> str:
        """A phrase on the longest row, if that is far from the limit; empty if it is not, or not
        known.
        """
        limit, needed = self.length_limit_that_rows_reach, self._token_count_that_fits_every_row()
        if limit is None or needed is None or not isinstance(limit.value, int):
            return ""
        if 2 * needed > limit.value:
            return ""
        if self.settings.longest is not None:
            return f"the longest row has {self.settings.longest:,} tokens"
        return f"the longest row has {needed:,} bytes of text"

    def _token_count_that_fits_every_row(self) -> int | None:
        """The number of tokens that holds every row: as the trainer counted them, otherwise one for
        each byte; None if not known.
        """
        if self.settings.longest is not None:
            return self.settings.longest
        limit = self.length_limit_that_rows_reach
        lengths = [
            rows.longest
            for rows in self.beside.rows
            if limit is not None and rows.settings == limit.file
        ]
        known = [one for one in lengths if one is not None]
        return max(known) if known and len(known) == len(lengths) else None

    def _evidence_of_script_causes(self) -> Iterator[str]:
        """Evidence of what the script beside the log does that explains it."""
        if self.cause in BEHIND_EVALUATION:
            for setting in self.beside.settings_named(MODE_OF_EVALUATION):
                yield f"{setting.place} puts the model into eval() mode, and nothing puts it back"
            for setting in self.beside.settings_named(KEPT_BY_EVALUATION):
                yield f"{setting.place}: {setting.text}"
        # Of these the value is the name of the rule that found the line.
        for setting in self.beside.settings_named(*self._settings_found_by_rules()):
            yield f"{setting.place}: {setting.text} (see {setting.value})"
        yield from self._evidence_of_ineffective_checkpointing()

    def _settings_found_by_rules(self) -> tuple[str, ...]:
        """The settings that rules on scripts found, and that the cause is about."""
        if self.cause is OWN_EVALUATION:
            return (KEPT_BY_EVALUATION,)
        loading = (MODEL_LOADING.name, LOADED_AFTER_TRAINING.name)
        is_loading = self.cause is not None and self.cause.name in loading
        return (SECOND_MODEL,) if is_loading else ()

    def _evidence_of_ineffective_checkpointing(self) -> Iterator[str]:
        """Evidence that gradient checkpointing is set, but this step runs without it."""
        checkpointing = self.beside.setting("gradient_checkpointing")
        is_set = checkpointing is not None and checkpointing.value is True
        if (
            is_set
            and failed_in_training_step(self.frames)
            and passes_layer_without_checkpoint(self.frames)
        ):
            yield (
                f"gradient checkpointing is on in {checkpointing.place if checkpointing else ''}, but this step goes"
                " through a layer without it: the model is in eval() mode, or use_cache or a wrapper switches it off"
            )

    def advice(self, gpu: str) -> str:
        """What to change, in order; nothing that the output says is in use already. `gpu`: its
        memory.
        """
        plan = (
            f"compute which part is too large with `truetune plan SETTINGS --gpu {gpu}` (or a"
            " script, or the model's folder, for SETTINGS)"
        )
        if (
            first_and_last_if_growing(self.memory)
            or self.value_that_loop_keeps_of_each_step is not None
        ):
            return (
                "keep losses with .item() and outputs (hidden states, logits) with"
                " .detach().cpu(), or not at all: look in the loop for lists and sums of tensors"
                " (`truetune lint SCRIPT`); smaller batches only delay it"
            )
        if (
            self.bytes_per_weight_of_whole_model is not None
            or self.fsdp_whole_model_unit_setting is not None
        ):
            # An estimate takes FSDP to share out each layer.
            return advice_on_fsdp_unit(self.fsdp_whole_model_unit_setting)
        weights = self.weights
        if weights.model_cell_run_twice is not None:
            # The run fitted before: a smaller batch is no remedy.
            return next(weights.edits_to_reduce_memory_of_weights())
        if self.cause is not None and self.cause.name in UNPLANNED:
            return "; ".join(self._changes_cheapest_first())
        return "; ".join((*self._changes_cheapest_first(), plan))

    def _changes_cheapest_first(self) -> Iterator[str]:
        """Changes in the order of their price: a variable first, then the data, the cause itself, smaller steps."""
        if self.is_fragmented:
            yield (
                f"first set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: PyTorch holds {self.pieces:.1f}"
                " GiB in pieces, more than what failed needs"
            )
        yield from self.weights.edits_to_reduce_memory_of_weights()
        if self.setting_that_orders_rows_by_length is not None:
            yield (
                f"leave out {self.setting_that_orders_rows_by_length.text}"
                f" ({self.setting_that_orders_rows_by_length.place}), or set the batch for the longest rows: a"
                " lower max_length, fewer rows at a time"
            )
        if self.failed_after_many_steps:
            yield (
                "see the longest rows with `truetune check DATA -t TOKENIZER -v`, and drop them or"
                " cut them with max_length"
            )
        if does_trained_share_exceed_adapter(self.settings) and self.cause in (
            None,
            OPTIMIZER_STATES,
            GRADIENT_CLIPPING,
        ):
            yield (
                "leave embed_tokens and lm_head out of what is saved whole, unless tokens were"
                " added (then trainable_token_indices trains these rows alone)"
            )
        if self.length_limit_that_rows_reach is not None:
            yield from self._changes_to_lower_length_limit(self.length_limit_that_rows_reach)
        elif self.rows_have_context_length:
            yield self._change_to_set_row_length_limit()
        if self.cause in OF_EVALUATION:
            yield from self._changes_of_evaluation()
        else:
            yield from self._changes_for_cause()

    def _changes_for_cause(self) -> Iterator[str]:
        """The changes that the cause itself advises, unless they are done already, and smaller
        steps if rows are the cause.
        """
        if self.rows_are_mostly_pictures:
            yield from self._changes_to_smaller_pictures()
            return
        fused = self.settings.fused_loss or _is_switched_on(self.beside.setting("use_liger_kernel"))
        if self.cause is LOSS_LOGITS and fused:
            yield "fewer or shorter rows: a loss kernel is on already (see that it knows this model's class)"
        elif self.cause is not None:
            yield self.cause.advice
        if self.cause is None or self.cause.by_rows:
            yield from self._changes_to_smaller_steps()

    def _changes_to_lower_length_limit(self, limit: SettingBeside) -> Iterator[str]:
        """The change to a lower length limit, if rows are filled to it, or may grow to a model's
        whole context.
        """
        assert isinstance(limit.value, int)
        needed = self._token_count_that_fits_every_row()
        lower = max(LEAST_LIMIT, _next_power_of_two(needed)) if needed is not None else USUAL_LIMIT
        if lower >= limit.value:
            return
        if self.settings_that_fill_rows_to_limit:
            reason = self._describe_longest_row() or "which is enough for most rows"
            yield f"lower {limit.key} from {limit.value:,} to {lower:,} ({limit.place}): {reason}"
        elif self.rows_have_context_length:
            yield (
                f"lower {limit.key} ({limit.place}): rows of the batch reach it (`truetune check DATA -t TOKENIZER -v`"
                " prints their lengths)"
            )

    def _change_to_set_row_length_limit(self) -> str:
        """The change that sets a limit for rows that are padded to the model's whole context."""
        if self.failed_tensor_shape is not None and self._is_longer_than_any_counted_row(
            self.failed_tensor_shape.length
        ):
            return (
                "lower the length limit of the settings (sequence_len, cutoff_len, max_length):"
                " rows are filled to it"
            )
        padded = self.beside.setting(PADDED_WITHOUT_LIMIT)
        where = f" at {padded.place}" if padded is not None else ""
        return (
            f"give the tokenizer a max_length with truncation=True{where} (2,048 is enough for most rows), and pad to"
            ' the longest row of a batch (padding=True in the collator), not padding="max_length"'
        )

    def _changes_of_evaluation(self) -> Iterator[str]:
        """Changes to the evaluation, with its batch size as far as a file says it."""
        assert self.cause is not None
        rows = self.beside.setting("per_device_eval_batch_size")
        if self.cause is not EVALUATION_BATCH or rows is None:
            yield self.cause.advice
        elif rows.value == 1:
            yield (
                f"the evaluation's batch is 1 already ({rows.place}): prediction_loss_only=True where no metric is"
                " computed, shorter evaluation rows, and nothing of the training kept on the GPU beside it"
            )
        else:
            yield (
                f"lower {rows.key} from {rows.value} to 1 ({rows.place}), and set"
                " prediction_loss_only=True where no metric is computed"
            )

    def _changes_to_smaller_pictures(self) -> Iterator[str]:
        """The change to a limit of pixels, then those that make a step smaller."""
        setting = self.beside.setting(PICTURES_WITHOUT_LIMIT)
        where = f" ({setting.place})" if setting is not None else ""
        side = TOKEN_SIDES[0]
        yield (
            f"make the pictures smaller{where}: AutoProcessor.from_pretrained(...,"
            f" max_pixels={USUAL_PICTURE_TOKENS}*{side}*{side}) gives each {USUAL_PICTURE_TOKENS:,} tokens"
            " at most (image_max_pixels in LLaMA-Factory, MAX_PIXELS in ms-swift, image_size in Axolotl),"
            " or image.thumbnail((1024, 1024)) before they are read; max_length is no help, it cuts the picture's own"
            " tokens"
        )
        if self.batch is not None and self.batch > 1:
            yield f"{self._change_to_smaller_batch(self.batch)} and double gradient_accumulation_steps"

    def _changes_to_smaller_steps(self) -> Iterator[str]:
        """Changes that make a step smaller and are not in use yet; shorter rows only if they are
        not advised already.
        """
        batch, checkpointing = self.batch, self._is_checkpointing_on()
        if batch is None or batch > 1:
            yield f"{self._change_to_smaller_batch(batch)} and double gradient_accumulation_steps"
        setting = self.beside.setting("gradient_checkpointing")
        if checkpointing is False and setting is not None:
            yield f"turn gradient_checkpointing on: it is off ({setting.place}: {setting.text})"
        elif checkpointing is None:
            yield "turn gradient_checkpointing on, unless it is"
        if batch == 1 and checkpointing and self.gib_of_training_states_exceeding_gpu is not None:
            yield (
                f"weights, gradients and optimizer states of {self.settings.trained:,} trained parameters are"
                f" {self.gib_of_training_states_exceeding_gpu:.0f} GiB at least, more than the GPU has: share them out"
                " (FSDP or ZeRO stage 3), or train an adapter"
            )
        elif batch == 1 and checkpointing and not self.failed_after_many_steps:
            yield (
                "the batch is 1 and checkpointing is on already: shorter rows (`truetune check DATA -t"
                " TOKENIZER -v` prints the lengths), or more GPUs"
            )

    def _change_to_smaller_batch(self, batch: int | None) -> str:
        """The change that halves the batch, by the key and line that set it if these are known."""
        if batch is None:
            return "halve per_device_train_batch_size, if it is above 1,"
        setting = self.beside.setting("per_device_train_batch_size")
        if setting is None or setting.value != batch:
            return f"lower per_device_train_batch_size from {batch} to {batch // 2}"
        return f"lower {setting.key} from {batch} to {batch // 2} ({setting.place})"

    def _is_checkpointing_on(self) -> bool | None:
        """Is gradient checkpointing on, as the output or a file beside it says? None if not known."""
        if self.settings.checkpointing or _is_switched_on(
            self.beside.setting(RECOMPUTED_BY_LAUNCHER)
        ):
            return True
        setting = self.beside.setting("gradient_checkpointing")
        return bool(setting.value) if setting is not None else None


def _number_of_setting(setting: SettingBeside | None) -> int | None:
    """The value of a setting that is a number; None if there is none."""
    return setting.value if setting is not None and type(setting.value) is int else None


def _next_power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()


def _is_switched_on(setting: SettingBeside | None) -> bool:
    """Is a switch set, and on?"""
    return setting is not None and setting.value is True

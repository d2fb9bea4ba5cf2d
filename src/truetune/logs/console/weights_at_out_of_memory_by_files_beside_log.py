"""Explains what the weights of a model take on a GPU that ran out of memory, by the files beside
the log.

The traceback says where memory ended; how much of it the weights hold, the load beside the log says: its type, its
place, the number of parameters. Sizes are lower bounds, so that "more than the GPU has" is a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.logs.console.out_of_memory_causes import (
    ENGINE_GRAPHS,
    GENERATION_ENGINE,
    HARNESS_BATCH,
    LOGITS_CAST,
    LOSS_LOGITS,
    MODEL_LOADING,
    OPTIMIZER_STATES,
    WHOLE_WEIGHTS,
    MemoryCause,
    failed_in_training_step,
)
from truetune.logs.console.parse_tracebacks import Frame
from truetune.logs.facts_in_files_beside_log import (
    ADAPTER_SLOT_RANK,
    ADAPTER_SLOTS,
    CELL_RUN_AGAIN,
    HARNESS_ROWS,
    LAYERS_SPREAD,
    LOADED_IN_FLOAT32,
    MERGES_ADAPTER,
    MODEL_PARAMETERS,
    SAVED_IN_FLOAT32,
    ZERO_STAGE,
    FilesBeside,
    SettingBeside,
)

SCRIPT_SUFFIXES = (".py", ".ipynb")
GIB = 1 << 30
BYTES_OF_FLOAT32, BYTES_IN_16_BITS = 4, 2
BYTES_IN_4_BITS = 0.56
"""Of a parameter: 4 bits, and the scales of its blocks; embeddings, which stay in 16 bits, come on top"""
MIN_SHARE = 0.3
"""Of the GPU, in float32 weights from which their type is worth a word. Chosen, not measured"""
ACTIVE_EXPERTS = re.compile(r"-A\d{1,3}(?:\.\d)?B", re.IGNORECASE)
"""`Qwen3-30B-A3B`: a mixture, with the parameters that a token uses"""
SHARES_OF_LAYERS, USUAL_GIB = (0.8, 0.5), 24.0
"""Of a GPU, that layers may fill on the first one and on the one that was full, and GiB of one that is not known.
Chosen, not measured: half of it is left for logits and activations"""
FEW_SHOT_TIMES = 16
"""Rows of a short task for one of a few-shot prompt. Chosen: of some hundred tokens, and of several thousand"""
OF_A_STEP = (None, LOSS_LOGITS, LOGITS_CAST, OPTIMIZER_STATES)


class WeightsOnGpu(NamedTuple):
    """A run that ran out of memory, as far as its weights matter."""

    cause: MemoryCause | None
    beside: FilesBeside
    capacity: float | None
    """GiB of the GPU"""
    gpu_number: str
    """Of the GPU that is full"""
    frames: Sequence[Frame]
    log_file: str = ""

    @property
    def failed_while_loading(self) -> bool:
        """Were weights being loaded?"""
        return self.cause is not None and self.cause.name == MODEL_LOADING.name

    def _setting_made_by_failed_run(self, name: str) -> SettingBeside | None:
        """The setting of this name that the run itself made, as far as the traceback tells; None
        otherwise.
        """
        setting_beside = self.beside.setting(name)
        return (
            setting_beside
            if setting_beside is not None and is_setting_of_failed_run(setting_beside, self.frames)
            else None
        )

    @property
    def _parameter_count_setting(self) -> SettingBeside | None:
        """The number of the model's parameters, by the files beside the log; None if it is not
        known.
        """
        return self.beside.setting(MODEL_PARAMETERS)

    @property
    def float32_load_setting(self) -> SettingBeside | None:
        """The load without a dtype, in float32, that fills a good part of the GPU; None if a step
        did not fail by it.
        """
        load, size = (
            self._setting_made_by_failed_run(LOADED_IN_FLOAT32),
            self._gib_of_weights(BYTES_OF_FLOAT32),
        )
        is_of_step = self.cause in OF_A_STEP and failed_in_training_step(self.frames)
        if load is None or size is None or not (is_of_step or self.failed_while_loading):
            return None
        return load if self.capacity is not None and size > MIN_SHARE * self.capacity else None

    @property
    def device_map_spread_setting(self) -> SettingBeside | None:
        """The device_map that puts layers on several GPUs, if a later one of them was full in a
        step.
        """
        setting_beside = self._setting_made_by_failed_run(LAYERS_SPREAD)
        is_later = self.gpu_number not in ("", "0")
        return (
            setting_beside if is_later and self.cause in (None, LOSS_LOGITS, LOGITS_CAST) else None
        )

    @property
    def model_cell_run_twice(self) -> SettingBeside | None:
        """The notebook cell that loads a model and was run a second time; None if memory ended
        elsewhere.
        """
        return (
            self.beside.setting(CELL_RUN_AGAIN)
            if self.cause is None or self.failed_while_loading
            else None
        )

    @property
    def zero_stage_that_keeps_weights_whole(self) -> SettingBeside | None:
        """The stage of ZeRO that leaves weights whole on each GPU; None if weights were not being
        put on the GPUs.
        """
        setting_beside = self.beside.setting(ZERO_STAGE)
        is_whole = setting_beside is not None and setting_beside.value in (0, 1, 2)
        return setting_beside if is_whole and self.cause is WHOLE_WEIGHTS else None

    def evidence(self) -> Iterator[str]:
        """What the files show of the weights, one line each."""
        yield from self._evidence_of_float32()
        yield from self._evidence_of_size()
        again, spread = self.model_cell_run_twice, self.device_map_spread_setting
        if again is not None:
            yield (
                f"{again.text}: the cell that loads the model was run again in a kernel that still holds the first one,"
                " its trainer and its optimizer"
            )
        if spread is not None:
            yield (
                f"{spread.text} ({spread.place}) spreads the layers by the size of their weights alone: GPU"
                f" {self.gpu_number} holds later layers, and the last one the head, whose logits come on top"
            )

    def _evidence_of_float32(self) -> Iterator[str]:
        """Evidence that weights are held in float32: by the load, or by what was saved."""
        load, size = self.float32_load_setting, self._gib_of_weights(BYTES_OF_FLOAT32)
        if load is not None and size is not None:
            yield (
                f"{load.place} loads {load.value or 'the model'} by {load.text}: transformers before 5 then loads"
                f" float32, {size:,.1f} GiB of weights instead of {size / 2:,.1f}, and gradients of the same type"
            )
        saved, capacity = self.beside.setting(SAVED_IN_FLOAT32), self.capacity or 0.0
        if saved is not None and self.failed_while_loading and float(saved.value) > capacity / 2:
            yield (
                f"{saved.text} ({saved.place}): its weights were saved in float32, {float(saved.value):,.1f} GiB, twice"
                " those in 16 bits"
            )

    def _evidence_of_size(self) -> Iterator[str]:
        """Evidence of the size of all weights, if they are being put on the GPU."""
        model, half = self._parameter_count_setting, self._gib_of_weights(BYTES_IN_16_BITS)
        if model is None or half is None:
            return
        stage = self.zero_stage_that_keeps_weights_whole
        if stage is not None:
            yield (
                f"{stage.text} ({stage.place}): each GPU holds all weights of {model.text}, {half:,.0f} GiB in 16 bits"
            )
        elif (
            self.failed_while_loading
            and self.capacity is not None
            and self.float32_load_setting is None
        ):
            quarter = self._gib_of_weights(BYTES_IN_4_BITS) or 0.0
            yield (
                f"{model.text} has {int(model.value) / 1e9:.3g} billion parameters: {half:,.0f} GiB in 16 bits,"
                f" {quarter:,.0f} in 4 bits and embeddings on top, of {self.capacity:.1f} GiB on this GPU"
            )
            if ACTIVE_EXPERTS.search(model.text):
                yield (
                    "all experts are held, however few a token uses; and bitsandbytes quantizes linear layers alone:"
                    " experts in one tensor of three dimensions (transformers 5) stay in 16 bits"
                )

    def _gib_of_weights(self, bytes_of_weight: float) -> float | None:
        """GiB of all weights; None if the model's size is not known."""
        model = self._parameter_count_setting
        return int(model.value) * bytes_of_weight / GIB if model is not None else None

    def edits_to_reduce_memory_of_weights(self) -> Iterator[str]:
        """The edits by which the weights, a merge or an evaluation harness take less memory of the GPU."""
        load, again, spread, stage = (
            self.float32_load_setting,
            self.model_cell_run_twice,
            self.device_map_spread_setting,
            self.zero_stage_that_keeps_weights_whole,
        )
        if again is not None:
            yield (
                "restart the kernel and run each cell once; or above the load: del model, trainer; gc.collect();"
                " torch.cuda.empty_cache()"
            )
        if load is not None:
            yield (
                f"load it in 16 bits: dtype=torch.bfloat16 in from_pretrained ({load.place}), torch_dtype= before"
                " transformers 4.56"
            )
        if stage is not None:
            yield f"set {stage.key} to 3 instead of {stage.value} ({stage.place})"
        if spread is not None:
            first, later = (share * (self.capacity or USUAL_GIB) for share in SHARES_OF_LAYERS)
            yield (
                f"give the load a max_memory that leaves GPU {self.gpu_number} room ({spread.place}:"
                f' max_memory={{0: "{first:.0f}GiB", {self.gpu_number}: "{later:.0f}GiB"}}), or start one process for'
                " each GPU with FSDP or ZeRO"
            )
        yield from self._edits_to_merge_or_evaluation_harness()

    def _edits_to_merge_or_evaluation_harness(self) -> Iterator[str]:
        """The edits of a merge, and of an evaluation harness."""
        merge, rows = (
            self._setting_made_by_failed_run(MERGES_ADAPTER),
            self.beside.setting(HARNESS_ROWS),
        )
        if merge is not None and self.failed_while_loading:
            yield (
                f'merge on the CPU: device_map="cpu" and dtype=torch.bfloat16 in the load of {merge.place},'
                " or `truetune merge ADAPTER -o MERGED`"
            )
        if rows is not None and self.cause is HARNESS_BATCH and type(rows.value) is int:
            yield f"lower --batch_size from {rows.value} to {max(1, rows.value // FEW_SHOT_TIMES)} ({rows.place})"


def is_setting_of_failed_run(setting: SettingBeside, frames: Sequence[Frame]) -> bool:
    """Does the traceback go through the script that makes a setting? Files of settings are those of
    any run.
    """
    name = Path(setting.file).name
    if not name.endswith(SCRIPT_SUFFIXES):
        return True
    return any(Path(frame.file.replace("\\", "/")).name == name for frame in frames)


def evidence_of_adapter_slots(beside: FilesBeside) -> Iterator[str]:
    """Evidence of how much more room a server reserves for adapters than the one beside the log
    takes.
    """
    slots, rank = beside.setting(ADAPTER_SLOTS), beside.setting(ADAPTER_SLOT_RANK)
    if rank is None:
        return
    count = int(slots.value) if slots is not None else 1
    places = " and ".join(f"{one.text} ({one.place})" for one in (slots, rank) if one is not None)
    own = beside.adapter.rank if beside.adapter is not None else None
    beyond = f"; the adapter here has r {own}" if own is not None and own < int(rank.value) else ""
    yield (
        f"{places}: each layer holds places for {count} x {rank.value} = {count * int(rank.value):,} ranks{beyond}"
    )


def evidence_of_inference_server_gpu_share(
    cause: MemoryCause | None, share: SettingBeside | None, capacity: float | None
) -> Iterator[str]:
    """Evidence of what a server's share of the GPU leaves for others, if that part was full."""
    is_engine = cause is not None and cause.name in (GENERATION_ENGINE.name, ENGINE_GRAPHS.name)
    if share is None or capacity is None or not is_engine:
        return
    rest = capacity * (1.0 - float(share.value))
    yield f"{share.text} ({share.place}) leaves {rest:.1f} of {capacity:.1f} GiB beside the share"

"""Records of what the files beside a log say of its run: settings, server limits, variables, other
logs.

A log alone leaves advice conditional ("turn it on, unless it is"). The script or the settings beside it say which. Who
gathers this is `checks.read_files_beside_log`; here is only what a rule on logs asks for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.read_nvidia_smi_output import GpuReading

LENGTH_LIMIT = "length_limit"
"""The setting that stands for the tokens at which rows are cut, whatever its key is called"""
FILLED_TO_LIMIT = "filled_to_limit"
"""The setting that makes every row as long as the limit: packing, or padding to it"""
LOADED_BY_EVERY_PROCESS = "loaded_by_every_process"
"""The setting by which each process reads the whole model into the machine's memory"""
HOST_GIB, PROCESSES, MODEL_GIB = "host_gib", "processes", "model_gib"
"""What a job asks for on a node: GiB of memory, and processes; and the weights of the model at two bytes each"""
ADAPTERS_AT_ONCE = "adapters_at_once"
"""The adapters that a batch of vLLM may mix, where the server has more of them"""
NODES = "nodes"
"""The nodes that a job asks for, where it is more than one"""
SHARDED_AS_ONE_UNIT, LEAST_UNIT = "sharded_as_one_unit", "least_unit"
"""Settings by which FSDP makes one unit of the whole model: no policy, or units by size, of at least so many weights"""
RECOMPUTED_BY_LAUNCHER = "recomputed_by_launcher"
"""The setting by which accelerate checkpoints activations: the Trainer's own knows nothing of it"""
OPTIMIZER_ON_CPU = "optimizer_on_cpu"
"""The setting that puts the states of the optimizer into the machine's memory"""
STATES_GIB = "states_gib"
"""What the optimizer keeps of a model that is trained whole, at least"""
LOADED_IN_FLOAT32 = "loaded_in_float32"
"""The load of a model without a type, by a release of transformers that then takes float32; its value names the model,
or is empty where the script computes the name"""
ZERO_STAGE = "zero_stage"
"""The stage of ZeRO that a DeepSpeed file sets"""
LOSS_SCALE = "loss_scale"
"""The fixed loss scale of float16 that a DeepSpeed file sets; 0, which is dynamic, is none"""
LAYERS_SPREAD = "layers_spread"
"""The device_map of a script's load that spreads the layers of one model over the GPUs"""
SAVED_IN_FLOAT32 = "saved_in_float32"
"""The config.json of weights that were saved in float32; its value is their GiB"""
MERGES_ADAPTER = "merges_adapter"
"""The load of a script that merges an adapter and trains nothing"""
MODEL_PARAMETERS = "model_parameters"
"""The parameters of the model, by its published shape or by its name"""
ROWS_BY_LENGTH = "rows_by_length"
"""The setting by which rows of like length come into one batch, the longest first"""
KEPT_BY_STEPS = "kept_by_steps"
"""What a loop keeps of each step on the GPU; its value names the rule that found it"""
CELL_RUN_AGAIN = "cell_run_again"
"""The cell of a notebook that loads a model, and was run again after cells that stand below it"""
HARNESS_ROWS = "harness_rows"
"""The batch of an evaluation harness, as its command sets it"""
ENGINE_SHARE = "engine_share"
"""The share of a GPU that a command gives vLLM"""
ADAPTER_SLOTS, ADAPTER_SLOT_RANK = "adapter_slots", "adapter_slot_rank"
"""Places that vLLM reserves for adapters, and the rank that each has room for"""
MEMORY_NOT_ASKED = "memory_not_asked"
"""A Slurm job that asks for no memory; its value is the processors that each task gets"""
LOGITS_ON_HOST = "logits_on_host"
"""The setting that moves the logits of an evaluation to the machine's memory, where a metric gets all of them"""
KEPT_BY_EVALUATION = "kept_by_evaluation"
"""What an evaluation keeps until its end; the value is the rule that finds it"""
KEEPS_ALL_LOGITS = "evaluation-keeps-all-logits"
ROWS_IN_A_LIST = "rows_in_a_list"
"""The line that holds all rows of a file as Python objects; its value is the workers of the DataLoader"""
ADAPTED_BASE = "adapted_base"
"""The base that a saved adapter names"""
NOTHING_RESUMED = "nothing_resumed"
"""The setting that stands for a call that trains without resuming"""
LABELS_OF_PADS = "labels_of_pads"
"""The setting that stands for labels which a script counts from the side of the pads; its value says how"""
SOFT_PROMPT = "soft_prompt"
"""The setting that stands for a prompt whose vectors alone are trained, as a script makes it by PEFT"""
FROZEN_IN_CODE = "frozen_in_code"
"""The setting that stands for weights of a model without an adapter which a script freezes or unfreezes itself"""
PICTURES_WITHOUT_LIMIT = "pictures_without_limit"
"""The setting that stands for a processor which keeps the size of pictures; its value says what these are"""
VALUE_NAMES = {True: "on", False: "off"}


class SettingBeside(NamedTuple):
    """A setting that a file beside the log makes."""

    name: str
    """In truetune's words: `gradient_checkpointing`, `per_device_train_batch_size`, `max_num_seqs`"""
    value: bool | int | float | str
    file: str
    line: int
    """1-based; 0 where nothing sets it, and the program's own default holds"""
    text: str
    """As the file says it"""

    @property
    def place(self) -> str:
        """The file and line of the setting, `train.py:14`; the file alone if nothing in it sets the
        value.
        """
        name = Path(self.file).name
        return f"{name}:{self.line}" if self.line else name

    @property
    def key(self) -> str:
        """The key as the file spells it, `micro_batch_size`; truetune's own word if it sets none."""
        match = re.match(r"-{0,2}([\w.-]{1,80})(?=[=: ])", self.text)
        return match[1] if match is not None and self.line else self.name


WARMUP_STEPS = "warmup_steps"
"""Steps in which the rate rises, as settings name them"""
SCHEDULE_STEPS = "schedule_steps"
"""Steps over which a schedule of the learning rate is built"""
IMAGE_WITHOUT_VERBS = "image_without_verbs"
"""A Dockerfile's image in which nothing installs the library of InfiniBand"""


class RunBeside(NamedTuple):
    """Another log of the project, as far as two runs can be compared by it."""

    file: str
    steps: float
    """Optimizer steps that were made"""
    total: float | None
    """That were planned"""
    rows_a_step: float | None
    processes: int | None
    nodes: int | None
    step_seconds: float | None
    rows_a_second: float | None
    epochs: float
    seconds: float | None
    is_even: bool = False
    """Do its steps come at an even pace?"""
    losses: tuple[tuple[float, float], ...] = ()
    """Step and loss at some places over the run, each the median of the records around it"""
    peak_rate: float | None = None
    epoch_batches: int = 0
    """Batches of an epoch for one process; 0 where no bar counts them"""
    epoch_seconds: float = 0.0
    batch: int | None = None
    """Rows that one process takes at once, as printed"""
    memory: tuple[tuple[float, float], ...] = ()
    """Step and GiB of the GPU's memory, where the log has it"""


class RowsBeside(NamedTuple):
    """The training rows that a file of settings names, as far as its files are here."""

    settings: str
    rows: int
    why: str
    """How they were counted, one line"""
    files: tuple[str, ...]
    limit: int | None
    """The longest example in tokens"""
    is_packed: bool
    longest: int | None = None
    """Bytes of the texts of the longest row; None where not all rows were read"""
    text_bytes: int | None = None
    """Bytes of the texts of all rows; None where not all were read"""


class AdapterBeside(NamedTuple):
    """The scale of the adapter that settings, a script or a saved adapter beside the log set."""

    file: str
    line: int
    """1-based, of lora_alpha; 0 where it is not known"""
    alpha: float
    rank: int
    is_rank_stabilised: bool

    @property
    def lora_alpha_divisor(self) -> float:
        """What lora_alpha is divided by: the rank, or its square root with rsLoRA."""
        return math.sqrt(self.rank) if self.is_rank_stabilised else self.rank

    @property
    def scale(self) -> float:
        """What the adapter's output is multiplied by."""
        return abs(self.alpha) / self.lora_alpha_divisor

    @property
    def place(self) -> str:
        """The file and line that set the adapter, `sft.yaml:12`."""
        name = Path(self.file).name
        return f"{name}:{self.line}" if self.line else name

    def __str__(self) -> str:
        """`lora_alpha 256 / sqrt(64) = 32`"""
        below = f"sqrt({self.rank})" if self.is_rank_stabilised else f"{self.rank}"
        return f"lora_alpha {self.alpha:g} / {below} = {self.scale:.3g}"


@dataclass(frozen=True, slots=True)
class FilesBeside:
    """What stands in the files beside a log."""

    settings: tuple[SettingBeside, ...] = ()
    runs: tuple[RunBeside, ...] = ()
    rows: tuple[RowsBeside, ...] = ()
    """Of settings and commands; a script may do anything with its rows"""
    gpus: tuple[GpuReading, ...] = ()
    """GPUs that nvidia-smi measured, by the files that hold its output"""
    adapters: tuple[AdapterBeside, ...] = ()
    """Of the trainings that the files set; several where files are of several runs"""

    @property
    def adapter(self) -> AdapterBeside | None:
        """The one adapter that the files set; None if there is none, or several of different
        scales.
        """
        is_one = len({round(one.scale, 6) for one in self.adapters}) == 1
        # A line of settings says more than what was saved.
        return max(self.adapters, key=lambda one: one.line > 0) if is_one else None

    def settings_named(self, *names: str) -> Iterator[SettingBeside]:
        """All settings of these names."""
        return (one for one in self.settings if one.name in names)

    def setting(self, name: str) -> SettingBeside | None:
        """The setting of that name; None if the files set none, or different values."""
        setting_besides = list(self.settings_named(name))
        is_one = len({one.value for one in setting_besides}) == 1
        # A line says more than a default, where both are the same.
        return max(setting_besides, key=lambda one: one.line > 0) if is_one else None


NOTHING_BESIDE = FilesBeside()

"""Settings of the run that its rehearsal does without, and data sets cut to what a rehearsal needs.

A rehearsal trains a miniature on one CPU, leaves nothing behind and reports to no one. So training arguments are
changed before any class validates them (`patch_training_arguments`), and data sets are cut before they are mapped
(`cut_datasets_before_map_or_filter`). Both run only in a rehearsal's own process, never in a run.

Trade-off: what is left out is not rehearsed. Where that changes what is computed (sharding, fused kernels, compiled
code), a note says so; where it changes only where or how fast (devices, workers, trackers), none does.
"""

from __future__ import annotations

import functools
import tempfile
from typing import Any

# Rows of a data set that are prepared. Chosen, not measured: a rehearsal memorises a few rows, and needs some to choose
# the shortest from. Half would do for most data; with many more, a slow `map` takes longer than the rehearsal itself.
MAX_ROWS = 256

# Training arguments and the values that they get.
OVERRIDES: dict[str, Any] = {
    # A miniature computes on one CPU in float32, whatever the run asks for.
    "use_cpu": True,
    "fp16": False,
    "bf16": False,
    "tf32": None,
    "fp16_full_eval": False,
    "bf16_full_eval": False,
    # Each of these needs a GPU, several processes, or minutes to compile.
    "deepspeed": None,
    "fsdp": [],
    "torch_compile": False,
    "use_liger_kernel": False,
    "activation_offloading": False,
    "use_vllm": False,
    # 8-bit and paged optimizers need a GPU.
    "optim": "adamw_torch",
    # Nothing leaves this machine.
    "report_to": "none",
    "push_to_hub": False,
    # Worker processes would start without the guards that this one stands under.
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "dataset_num_proc": None,
    # A checkpoint of the real model fits no miniature.
    "resume_from_checkpoint": None,
}

# The first data sets that were mapped, which a program may turn into ids itself before its trainer gets them: the texts
# of the rows are looked for here.
mapped_datasets: list[Any] = []
# Training and evaluation data, each perhaps mapped twice. They are kept alive, so their number is limited.
MAX_MAPPED_DATASETS = 4

# Those of OVERRIDES that change what is computed.
NOTED_OVERRIDES = (
    "deepspeed",
    "fsdp",
    "torch_compile",
    "use_liger_kernel",
    "activation_offloading",
)


def patch_training_arguments(base: Any, notes: list[str], folder: str | None) -> None:
    """Trim training arguments from now on, before any class's own `__post_init__` looks at them.

    Args:
        base: transformers' TrainingArguments.
        notes: what is changed is added here.
        folder: holds what a run writes, each in a folder of its own; None for the system's temporary one.
    """
    check = base.__post_init__

    @functools.wraps(check)
    def __post_init__(self: Any) -> None:  # noqa: N807
        apply_overrides(self, notes)
        check(self)
        self.output_dir = tempfile.mkdtemp(prefix="truetune-", dir=folder)

    base.__post_init__ = __post_init__
    subclass = base.__init_subclass__

    # TRL's SFTConfig and the like have a `__post_init__` of their own, which looks at arguments (bf16, use_vllm) before
    # it calls the one of its base. Trimmed in the base alone, they would still decide by the run's values.
    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:  # noqa: N807
        subclass(**kwargs)
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            @functools.wraps(own)
            def first(self: Any, *args: Any, **kwargs: Any) -> None:
                apply_overrides(self, notes)
                own(self, *args, **kwargs)

            cls.__post_init__ = first

    base.__init_subclass__ = classmethod(__init_subclass__)


def apply_overrides(arguments: Any, notes: list[str]) -> None:
    """Give training arguments the values of OVERRIDES; those that change the computation are noted once."""
    for name, value in OVERRIDES.items():
        asked_for = getattr(arguments, name, value)
        if name in NOTED_OVERRIDES and asked_for:
            text = f"{name} is left out: the miniature runs on one CPU"
            if text not in notes:
                notes.append(text)
        if asked_for != value:
            setattr(arguments, name, value)


def cut_datasets_before_map_or_filter(dataset_class: Any, notes: list[str]) -> None:
    """Cut data sets to their first rows before they are mapped or filtered.

    Args:
        dataset_class: `datasets.Dataset`, whose methods are replaced.
        notes: a cut is noted here, once.
    """
    original_select = dataset_class.select

    def shortened(dataset: Any) -> Any:
        """The first rows of a data set; itself where it has no more."""
        if len(dataset) <= MAX_ROWS:
            return dataset
        text = f"data sets are cut to their first {MAX_ROWS} rows"
        if text not in notes:
            notes.append(text)
        return original_select(dataset, range(MAX_ROWS))

    # `dataset.select(range(9000, 10000))` after a `map` asks for rows that were cut off. Without this it raises an
    # IndexError, and the program ends before its trainer is reached.
    @functools.wraps(original_select)
    def select(self: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(indices, range) and indices and max(indices[0], indices[-1]) >= len(self):
            indices = range(*(slice(indices.start, indices.stop, indices.step).indices(len(self))))
        return original_select(self, indices, *args, **kwargs)

    def on_shortened(method: Any) -> Any:
        """A method of data sets that works on the first rows only, in this process."""

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("num_proc"):  # other processes would stand outside the guards
                kwargs["num_proc"] = None
            short = shortened(self)
            if len(mapped_datasets) < MAX_MAPPED_DATASETS:
                mapped_datasets.append(short)
            return method(short, *args, **kwargs)

        return run

    dataset_class.select = select
    dataset_class.map = on_shortened(dataset_class.map)
    dataset_class.filter = on_shortened(dataset_class.filter)

"""A rehearsal leaves nothing behind and wastes no time: settings of the run that it does without."""

from __future__ import annotations

import functools
import tempfile
from typing import Any

MAX_ROWS = 256
"""Rows of a data set that are prepared"""
OVERRIDES: dict[str, Any] = {
    "use_cpu": True, "fp16": False, "bf16": False, "tf32": None, "fp16_full_eval": False, "bf16_full_eval": False,
    "deepspeed": None, "fsdp": [], "torch_compile": False, "use_liger_kernel": False, "optim": "adamw_torch",
    "report_to": "none", "push_to_hub": False, "dataloader_num_workers": 0, "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None, "dataset_num_proc": None, "resume_from_checkpoint": None,
    "activation_offloading": False, "use_vllm": False,
}  # fmt: skip
"""Training arguments and the values that they get"""
mapped_datasets: list[Any] = []
"""The first data sets that were mapped, which a program may turn into ids itself before its trainer gets them"""
MAX_MAPPED_DATASETS = 4
NOTED_OVERRIDES = (
    "deepspeed",
    "fsdp",
    "torch_compile",
    "use_liger_kernel",
    "activation_offloading",
)
"""Those that change what is computed"""


def patch_training_arguments(base: Any, notes: list[str], folder: str | None) -> None:
    """Training arguments are trimmed from now on, before any class's own __post_init__ looks at them.

    `base` is transformers' TrainingArguments, `folder` holds what a run writes; what is changed is added to `notes`.
    """
    check = base.__post_init__

    @functools.wraps(check)
    def __post_init__(self: Any) -> None:  # noqa: N807
        apply_overrides(self, notes)
        check(self)
        self.output_dir = tempfile.mkdtemp(prefix="truetune-", dir=folder)

    base.__post_init__ = __post_init__
    subclass = base.__init_subclass__

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
    """Give training arguments the values of WITHOUT; what changes the computation is noted."""
    for name, value in OVERRIDES.items():
        given = getattr(arguments, name, value)
        if name in NOTED_OVERRIDES and given:
            text = f"{name} is left out: the miniature runs on one CPU"
            if text not in notes:
                notes.append(text)
        if given != value:
            setattr(arguments, name, value)


def patch_datasets(dataset_class: Any, notes: list[str]) -> None:
    """Data sets are cut to their first rows before they are mapped or filtered. It is the class of datasets."""

    def trimmed(dataset: Any) -> Any:
        if len(dataset) <= MAX_ROWS:
            return dataset
        text = f"data sets are cut to their first {MAX_ROWS} rows"
        if text not in notes:
            notes.append(text)
        return _select(dataset, range(MAX_ROWS))

    _select = dataset_class.select

    @functools.wraps(_select)
    def select(self: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        """A program may ask for rows that were cut off."""
        if isinstance(indices, range) and indices and max(indices[0], indices[-1]) >= len(self):
            indices = range(*(slice(indices.start, indices.stop, indices.step).indices(len(self))))
        return _select(self, indices, *args, **kwargs)

    def of(method: Any) -> Any:
        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("num_proc"):
                kwargs["num_proc"] = None
            short = trimmed(self)
            if len(mapped_datasets) < MAX_MAPPED_DATASETS:
                mapped_datasets.append(short)
            return method(short, *args, **kwargs)

        return run

    dataset_class.select = select
    dataset_class.map, dataset_class.filter = of(dataset_class.map), of(dataset_class.filter)

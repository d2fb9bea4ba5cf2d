"""Which columns of rows that are token ids already tell each trainer what to learn.

TRL's was read in the source of 1.16.0, and transformers' in that of 5.23.0. The others are as
docs/trainers-others.md has them, and no test runs any of them yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from truetune.trainers.trainer_fact_types import TrainerName


class LabelColumns(NamedTuple):
    """The columns that tell one trainer what to learn of such rows."""

    masks: tuple[str, ...]
    """Columns beside `labels` that it reads, with its default settings"""
    without_labels: str
    """What it does where it finds none of them, as the end of a sentence"""
    place: str
    """File and function of its package"""


# Not in the facts of each trainer: no test runs these yet, and a fact there is one that a test or a
# reading proved.
LABEL_COLUMNS: Mapping[TrainerName, LabelColumns] = {
    "trl": LabelColumns(
        ("assistant_masks",),
        "copies input_ids into labels; completion_mask counts with completion_only_loss: true"
        " alone",
        "trl/trainer/sft_trainer.py: SFTTrainer._prepare_dataset,"
        " DataCollatorForLanguageModeling.torch_call",
    ),
    "unsloth": LabelColumns(
        ("assistant_masks",),
        "copies input_ids into labels, as TRL's SFTTrainer does",
        "trl/trainer/sft_trainer.py: SFTTrainer._prepare_dataset",
    ),
    "transformers": LabelColumns(
        (),
        "drops columns that the model does not take; its language-modelling collator makes labels"
        " of all input_ids",
        "transformers/data/data_collator.py: DataCollatorForLanguageModeling.torch_call",
    ),
    "axolotl": LabelColumns(
        (), "trains on the column labels alone", "axolotl/utils/collators/batching.py"
    ),
    "llama-factory": LabelColumns(
        (), "trains on the column labels alone", "llamafactory/data/loader.py: get_dataset"
    ),
    "truetune": LabelColumns(
        (), "takes rows as text, and encodes them itself", "truetune/training"
    ),
}


def label_columns_of_trainer(name: TrainerName | None) -> LabelColumns | None:
    """The rule of a trainer; None where it is not known, or the user's code decides."""
    return None if name is None else LABEL_COLUMNS.get(name)

"""The fix of a setting that goes by another name today: the new name in the place of the old one."""

from __future__ import annotations

import re

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    offset_of_place,
)
from truetune.checks.findings import Edit, Fix
from truetune.settings.config import Config, RenamedKey

SAME_VALUE = frozenset(
    (
        "evaluation_strategy",
        "max_seq_length",
        "per_gpu_train_batch_size",
        "per_gpu_eval_batch_size",
        "torch_dtype",
    )
    + (
        "no_cuda",
        "push_to_hub_token",
        "use_liger",
        "noisy_embedding_alpha",
        "dpo_beta",
        "dpo_ftx",
        "dpo_loss",
    )
    + (
        "dataset_processes",
        "gc_steps",
        "name_module_trainable",
        "num_layer_trainable",
        "sft_packing",
    )
)
"""Old names whose value means the same under the new one"""


def fix_of_old_name(config: Config, old: RenamedKey) -> Fix | None:
    """The fix that writes a setting's new name in the place of the old one; None where the value
    means something else today, or the name is not where it is said.
    """
    key, text = old.place.key.rpartition(".")[2], config.text
    if old.now is None or key not in SAME_VALUE or old.place.file != config.path:
        return None
    start = offset_of_place(text, old.place)
    if is_config_of_python_program(
        config
    ):  # the place is that of the value, behind `key=`, `"key": ` or `["key"] = `
        written = re.search(rf"\b{re.escape(key)}(?:[\\\"']*\]?\s*[=:]\s*)$", text[:start])
        start = written.start() if written is not None else start
    if not text.startswith(key, start):
        return None
    return Fix(old.place.file, (Edit(start, start + len(key), old.now),))

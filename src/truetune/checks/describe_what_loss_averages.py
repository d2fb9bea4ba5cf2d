"""Describes what a reported loss is a mean of (which tokens of which rows), by the settings of a run, so that the
losses of two runs can be compared.

A loss is a mean over the supervised tokens of some rows. The switches that choose the tokens, that change what is added
up, and that choose the evaluation rows are read in the words of each stack, with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_place
from truetune.settings.config import Config, LossBasis, LossSetting

TOKEN_SWITCHES: Mapping[str, str] = {
    "assistant_only_loss": "false",
    "completion_only_loss": "none",
    "train_on_inputs": "false",
    "train_on_input": "false",
    "train_on_prompt": "false",
    "mask_history": "false",
    "roles_to_train": "['assistant']",
    "train_on_eos": "turn",
    "loss_scale": "default",
}
"""Which tokens are supervised, in the words of TRL, Axolotl, torchtune, LLaMA-Factory and ms-swift, and the default"""
SUM_SWITCHES: Mapping[str, str] = {
    "label_smoothing_factor": "0",
    "use_dft_loss": "false",
    "loss_type": "nll",
}
"""What is added up for each token; the Trainer smooths the labels of an evaluation too"""
PACKING_SWITCHES: Mapping[str, str] = {
    "packing": "false",
    "eval_packing": "",
    "sample_packing": "false",
    "eval_sample_packing": "",
    "neat_packing": "false",
}
"""Which tokens stand before a token, and how rows are weighed: tokens count alike in a pack, rows in a batch. Packs of
an evaluation are those of the training where nothing is said"""
ROW_SWITCHES: Mapping[str, str] = {
    "eval_dataset": "none",
    "val_dataset": "none",
    "test_datasets": "none",
    "dataset_test_split": "test",
    "val_set_size": "0",
    "val_size": "0",
    "split_dataset_ratio": "0",
    "max_eval_samples": "none",
}
"""Which rows are evaluated"""
PACKED_AS = {"eval_packing": "packing", "eval_sample_packing": "sample_packing"}
LEARNED_BY = frozenset(
    (
        "assistant_only_loss",
        "completion_only_loss",
        "train_on_inputs",
        "train_on_input",
        "train_on_prompt",
    )
)
"""Switches of which `learned` says what they come to for these rows: one for prompts does nothing to rows of text"""
MAX_DEPTH = 3
"""Levels of tables and lists that are read (`datasets[0].roles_to_train` has three)"""
NAMES_OF_ROWS = ("dataset", "dataset_name", "datasets", "train_dataset", "dataset_id_or_path")
NOT_EVALUATED = frozenset(("", "no", "none", "false"))


def loss_basis(config: Config) -> LossBasis:
    """What the loss of a run is a mean of: its tokens, its evaluation rows, and what is added to
    it.
    """
    spec = config.spec
    raw_values = dict(_nested_settings(config.raw, "", MAX_DEPTH))
    settings: list[LossSetting] = []
    for switches in (TOKEN_SWITCHES, SUM_SWITCHES, PACKING_SWITCHES, ROW_SWITCHES):
        for key, default in switches.items():
            settings += _loss_setting(config, raw_values, key, default)
    learned = spec.learn.what if "learn" in spec.model_fields_set else ""
    rows = spec.data or config.row_files or tuple(_training_data_names_in_settings(config.raw))
    has_rows = bool(spec.eval_data) or any(
        one.key in ROW_SWITCHES and one.line and one.value not in ("0", "none", "false")
        for one in settings
    )
    strategy = spec.training.eval_strategy
    is_evaluated = has_rows if strategy is None else str(strategy) not in NOT_EVALUATED
    return LossBasis(tuple(settings), learned, tuple(sorted(map(str, rows))), is_evaluated)


def _loss_setting(
    config: Config, raw_values: Mapping[str, tuple[str, Any]], key: str, default: str
) -> Iterator[LossSetting]:
    """A setting that changes the loss, with the value that takes effect; none if only the program
    knows it.
    """
    named = raw_values.get(key)
    if named is None:
        packed_as = raw_values.get(PACKED_AS.get(key, ""))
        yield LossSetting(key, default if packed_as is None else _canonical_text(packed_as[1]), 0)
        return
    way, value = named
    if isinstance(value, str | bool | int | float | list | tuple) or value is None:
        yield LossSetting(key, _canonical_text(value), setting_place(config, way, key).line)


def _nested_settings(value: Any, way: str, depth: int) -> Iterator[tuple[str, tuple[str, Any]]]:
    """The keys of settings, of tables in them, and of tables in lists, with the way to each; the outermost counts."""
    entries: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        entries = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        # Data sets of one run are learned alike nearly always; the first one stands for all.
        entries = [(str(number), item) for number, item in enumerate(value[:1])]
    below = [(f"{way}.{key}".lstrip("."), item) for key, item in entries]
    if depth:
        for path, item in below:
            yield from _nested_settings(item, path, depth - 1)
    for (key, item), (path, _) in zip(entries, below, strict=True):
        yield key, (path, item)


def _canonical_text(value: object) -> str:
    """A value as text in one form, so that 0.0 equals 0, and `no` equals false."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if value is None or value in ("True", "False") else str(value)


def _training_data_names_in_settings(raw: Mapping[str, Any]) -> Iterator[str]:
    """The training rows as settings name them, where they are not on this machine."""
    for key in NAMES_OF_ROWS:
        value = raw.get(key)
        for item in value if isinstance(value, list) else [value]:
            named = item.get("path") if isinstance(item, dict) else item
            if isinstance(named, str) and named:
                yield named

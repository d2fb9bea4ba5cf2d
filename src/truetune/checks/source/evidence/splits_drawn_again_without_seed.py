"""Finds scripts that ask a model on a split of their own, which is not the split that the training held out.

How it works: a script that asks a model and trains none splits a data file, and so does a training of the same project.
If one of the two splits is drawn without a seed, the rows of the two test parts differ, and most of the asked rows were
trained on.

The trade-off: that both split the same rows is known by the name of the data file or data set that both scripts hold. A
script that seeds the generator by itself, or a training that writes rows to files, is taken for right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.prompt_forms import scripts_beside, trains_a_model
from truetune.checks.source.evidence.row_orders_and_splits_without_seed import (
    is_seeded_alike_on_all_processes,
    random_draws_without_own_seed,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

DATA_SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
FORMATS = frozenset(("json", "csv", "parquet", "text", "arrow", "pandas"))
"""Names that `load_dataset` takes for a format of files, and no data set"""
SPLIT_FUNCTIONS = (
    "torch.utils.data.random_split",
    "torch.utils.data.dataset.random_split",
    "sklearn.model_selection.*train_test_split",
)
SPLIT_METHOD = "train_test_split"
MODEL_LOADS = ("*.from_pretrained", "transformers.pipeline", "vllm.LLM")
ROW_WRITERS = ("save_to_disk", "to_json", "to_csv", "to_parquet")
"""Methods by which a training hands its held-out rows to other scripts"""


class RedrawnSplit(NamedTuple):
    """A split of a script that asks a model, and that of the training."""

    asked: ast.Call
    training: Module
    trained: ast.Call
    unseeded: str
    """Which of the two has no seed, in words"""


def split_calls(module: Module) -> Iterator[Call]:
    """The calls of a file that split rows at random."""
    yield from module.calls(*SPLIT_FUNCTIONS)
    for call in module.methods(SPLIT_METHOD):
        if call.receiver is not None and "dataset" in module.flow.types(call.receiver):
            yield call


def splits_drawn_again(module: Module) -> Iterator[RedrawnSplit]:
    """The splits of a script that asks a model which are not those that a training beside it held out."""
    call = next(split_calls(module), None)
    if call is None or trains_a_model(module) or not any(module.calls(*MODEL_LOADS)):
        return
    names = _data_names(module)
    for other in scripts_beside(module):
        trained = next(split_calls(other), None)
        if trained is None or not trains_a_model(other) or not names & _data_names(other):
            continue
        unseeded = _unseeded_sides(module, other)
        if unseeded and not any(other.methods(*ROW_WRITERS)):
            yield RedrawnSplit(call.node, other, trained.node, unseeded)
            return


def _unseeded_sides(asking: Module, training: Module) -> str:
    """Which of two scripts split without a seed, in words; empty where both have one."""
    is_asking, is_training = map(_splits_without_seed, (asking, training))
    if is_asking and is_training:
        return "neither split has a seed"
    if is_asking:
        return "this split has no seed"
    return "that of the training has no seed" if is_training else ""


def _splits_without_seed(module: Module) -> bool:
    """Is each split of a file drawn from a generator that nothing seeds?"""
    unseeded = [draw for draw in random_draws_without_own_seed(module) if draw.is_split]
    parts = module.self_and_files_run_together
    return len(unseeded) == sum(1 for _ in split_calls(module)) and not any(
        is_seeded_alike_on_all_processes(parts, draw.generator) for draw in unseeded
    )


def _data_names(module: Module) -> frozenset[str]:
    """The last parts of the data files that a script names, and the data sets that it loads."""
    files = {
        node.value.replace("\\", "/").rpartition("/")[2]
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str) and node.value.endswith(DATA_SUFFIXES)
    }
    loaded = (
        module.flow.value(call.argument(0, "path"))
        for call in module.calls("datasets.load_dataset", "datasets.load.load_dataset")
    )
    sets = {name for name in loaded if isinstance(name, str) and name not in FORMATS}
    # A bare suffix is compared with names, and results of an evaluation are no data.
    return frozenset((files | sets) - set(DATA_SUFFIXES))

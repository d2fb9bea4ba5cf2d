"""Models, tokenizers and rows of this process, found among its live objects.

A loop of the user's own hands us nothing. What it works with is alive, so it is looked up in the garbage collector's
list. Objects are the user's: each is known by its type, which is asked by `type` and never by `isinstance`, since a
class may answer that with code of its own.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

# Lists and data sets in which the rows of a run are looked for. Chosen, not measured: each is compared with the batches
# (`source_rows.share_in_batches`), while the run waits.
MAX_LISTS = 20


def model_trained_by(optimizer: Any) -> Any:
    """The outermost model of transformers or PEFT that holds weights of this optimizer; None where there is none.

    Of several (two models in one optimizer) it is the one with the most of these weights.
    """
    # By identity: tensors compare by value, elementwise.
    weights = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    held = {
        id(model): model
        for model in _live_instances(_model_classes())
        if _count_shared_weights(model, weights)
    }
    # PEFT's model holds that of transformers: the outermost one is what the loop calls.
    inner = {id(part) for model in held.values() for part in model.modules() if part is not model}
    outermost = [model for key, model in held.items() if key not in inner]
    return max(outermost, key=lambda model: _count_shared_weights(model, weights), default=None)


def is_wrapped_by_compile(model: Any) -> bool:
    """Is a module alive that `torch.compile` made of this model?"""
    module = sys.modules.get("torch._dynamo.eval_frame")
    compiled = _live_instances((module.OptimizedModule,)) if module is not None else ()
    return any(wrapper._orig_mod is model for wrapper in compiled)


class AliveObjects(NamedTuple):
    """What a loop may work with. It is collected before a copy of the process is made: in a copy the collector's list
    is empty (`truetune.probe.forked_process` freezes it)."""

    tokenizers: tuple[Any, ...]
    rows: tuple[Any, ...]
    """Data sets of data loaders, those of the `datasets` package, and lists of dictionaries in the main program"""

    @classmethod
    def collect(cls) -> AliveObjects:
        """Collect the models, rows and tokenizers that are alive at this moment."""
        module = sys.modules.get("transformers.tokenization_utils_base")
        tokenizers = (
            _live_instances((module.PreTrainedTokenizerBase,)) if module is not None else []
        )
        row_holders = [
            *_datasets_read_by_data_loaders(),
            *_live_hugging_face_datasets(),
            *_row_lists_among_main_globals(),
        ]
        rows = {id(rows): rows for rows in row_holders}
        return cls(tuple(tokenizers), tuple(rows.values())[:MAX_LISTS])

    def tokenizer_for(self, model: Any, rows: int | None) -> Any:
        """The tokenizer for a model with so many embedding rows; None where it cannot be told which of several
        it is.
        """
        named = str(getattr(getattr(model, "config", None), "_name_or_path", ""))
        fitting = [one for one in self.tokenizers if rows is None or len(one) <= rows]
        by_name = [one for one in fitting if named and one.name_or_path == named]
        chosen = by_name or fitting
        same = {(type(one), len(one), one.name_or_path) for one in chosen}
        return chosen[-1] if len(same) == 1 else None


def _datasets_read_by_data_loaders() -> Iterator[Any]:
    """What data loaders read, and what those data sets hold: a class of the user's often keeps its rows in a list."""
    module = sys.modules.get("torch.utils.data.dataloader")
    if module is None:
        return
    loaders = [loader.dataset for loader in _live_instances((module.DataLoader,))]
    # The loader of `for batch in DataLoader(...)` is gone, its iterator is not.
    iterators = [iterator._dataset for iterator in _live_instances((module._BaseDataLoaderIter,))]
    for dataset in (*iterators, *loaders):
        yield dataset
        yield from (
            value
            for value in getattr(dataset, "__dict__", {}).values()
            if _is_sequence_of_dicts(value)
        )


def _live_hugging_face_datasets() -> Iterator[Any]:
    """All live data sets of the `datasets` package."""
    module = sys.modules.get("datasets.arrow_dataset")
    if module is not None:
        yield from _live_instances((module.Dataset,))


def _row_lists_among_main_globals() -> Iterator[Any]:
    """Lists of dictionaries among the global variables of the program."""
    main = sys.modules.get("__main__")
    if main is not None:
        yield from (value for value in list(vars(main).values()) if _is_sequence_of_dicts(value))


def _is_sequence_of_dicts(value: Any) -> bool:
    """Is it a list or tuple of dictionaries?"""
    return type(value) in (list, tuple) and bool(value) and type(value[0]) is dict


def _model_classes() -> tuple[type, ...]:
    """The classes of models of transformers and PEFT, of those of the two that are imported."""
    modules = {"transformers.modeling_utils": "PreTrainedModel", "peft.peft_model": "PeftModel"}
    return tuple(
        getattr(sys.modules[module], name)
        for module, name in modules.items()
        if module in sys.modules
    )


def _live_instances(kinds: tuple[type, ...]) -> list[Any]:
    """All live objects of these types.

    A list, and no generator: a tuple that is made of a generator is itself among the collector's objects while it
    grows, and Python refuses to grow a tuple that something else holds (SystemError).
    """
    return [one for one in gc.get_objects() if issubclass(type(one), kinds)] if kinds else []


def _count_shared_weights(model: Any, weights: set[int]) -> int:
    """How many of a model's parameters are among these, by identity."""
    return sum(id(weight) in weights for weight in model.parameters())

"""Makes tokenizer, model config and generation config of a run name the same special ids (pad, BOS,
EOS, stops).

Three files name them, and each is read by another program: collators take the tokenizer's pad, models the config's,
generate() and servers the stop ids of the generation config. What differed is returned, to be told. The trade-off: a
published config is changed in the copy that is saved, where leaving it alone would carry its contradiction on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from truetune.training.training_recipe import Choice


def align_special_ids(model: Any, tokenizer: Any, stops: Iterable[int]) -> Iterator[Choice]:
    """Set pad, BOS and EOS in the model's configs to the tokenizer's ids, and put every stop into
    the generation config.

    The tokenizer's EOS stays as published: templates write it. transformers, vLLM and SGLang stop at all EOS ids of the
    generation config.

    Args:
        model: changed in place, with its two configs.
        tokenizer: of transformers, with the pad that was chosen.
        stops: ids that end a turn as the template writes it.

    Yields:
        What was not so before, to be told.
    """
    generation, holders = model.generation_config, [model.config.get_text_config(), model.config]
    # The tokenizer is the source of truth: the rows were encoded with it, and a config that says
    # otherwise is what a server would go by.
    for name in ("bos_token_id", "pad_token_id"):
        id, was = getattr(tokenizer, name), getattr(holders[0], name, None)
        if id is not None:
            for holder in (*holders, generation):
                setattr(holder, name, id)
            # A config that said nothing is no contradiction: filling it needs no line in the log.
            if was not in (id, None):
                yield Choice(name, id, f"as the tokenizer has it; config said {was}")
    # A config that lists the tokenizer's EOS among others (Llama 3) is right, and keeps them all.
    eos = tokenizer.eos_token_id
    for holder in holders:
        if eos is not None and eos not in _as_id_set(getattr(holder, "eos_token_id", None)):
            holder.eos_token_id = eos
    yield from _add_stop_ids(generation, stops, tokenizer)
    yield from _turn_sampling_on_if_unsavable(generation)


def _add_stop_ids(generation: Any, stops: Iterable[int], tokenizer: Any) -> Iterator[Choice]:
    """Make generate() stop at every stop token; what was missing is given as a choice to report."""
    before = _as_id_set(generation.eos_token_id)
    # generate() stops at these ids alone. Without the trained stop among them the tuned model runs
    # on after each answer, and the loss never shows it.
    missing = sorted({*stops, *_as_id_set(tokenizer.eos_token_id)} - before)
    if missing:
        all_ = sorted({*before, *missing})
        generation.eos_token_id = all_ if len(all_) > 1 else all_[0]
        spelled = " ".join(str(tokenizer.convert_ids_to_tokens(id)) for id in missing)
        yield Choice(
            "generation_config.eos_token_id", generation.eos_token_id, f"{spelled} ends a turn too"
        )


def _as_id_set(value: int | list[int] | None) -> set[int]:
    """The ids of a config field that holds none, one or several."""
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)


def _turn_sampling_on_if_unsavable(generation: Any) -> Iterator[Choice]:
    """Turn sampling on where transformers would otherwise refuse to save the generation config,
    which would end a run at its first checkpoint.
    """
    try:
        generation.validate(strict=True)
    except ValueError:
        # Many published configs set temperature without do_sample. Sampling is what their authors
        # meant; deleting the values would change how the model is served.
        generation.do_sample = True
        why = "transformers does not save the published settings (temperature, top_p) without it"
        yield Choice("generation_config.do_sample", True, why)

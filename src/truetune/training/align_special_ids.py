"""Special ids: the tokenizer, the model's config and its generation config say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from truetune.training.training_recipe import Choice


def align_special_ids(model: Any, tokenizer: Any, stops: Iterable[int]) -> Iterator[Choice]:
    """Set the ids of pad, BOS and EOS as the tokenizer has them; `generation_config` stops at every one of `stops`.

    The tokenizer's EOS stays as published: templates write it. transformers, vLLM and SGLang stop at all EOS ids of
    the generation config.
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
    # EOS is only added to, never replaced, where the config lists it already: a config with several
    # EOS ids (Llama 3) has to keep all of them.
    for holder in holders:
        if (id := tokenizer.eos_token_id) is not None and id not in _id_set(
            getattr(holder, "eos_token_id", None)
        ):
            holder.eos_token_id = id
    yield from _add_stop_ids(generation, stops, tokenizer)
    yield from _make_config_valid(generation)


def _add_stop_ids(generation: Any, stops: Iterable[int], tokenizer: Any) -> Iterator[Choice]:
    before = _id_set(generation.eos_token_id)
    # generate() stops at these ids alone. Without the trained stop among them the tuned model runs
    # on after each answer, and the loss never shows it.
    missing = sorted({*stops, *_id_set(tokenizer.eos_token_id)} - before)
    if missing:
        all_ = sorted({*before, *missing})
        generation.eos_token_id = all_ if len(all_) > 1 else all_[0]
        spelled = " ".join(str(tokenizer.convert_ids_to_tokens(id)) for id in missing)
        yield Choice(
            "generation_config.eos_token_id", generation.eos_token_id, f"{spelled} ends a turn too"
        )


def _id_set(value: int | list[int] | None) -> set[int]:
    return set() if value is None else {value} if isinstance(value, int) else set(value)


def _make_config_valid(generation: Any) -> Iterator[Choice]:
    """A generation config that transformers would refuse to save ends a run at its first checkpoint."""
    try:
        generation.validate(strict=True)
    except ValueError:
        # Many published configs set temperature without do_sample. Sampling is what their authors
        # meant; deleting the values would change how the model is served.
        generation.do_sample = True
        why = "transformers does not save the published settings (temperature, top_p) without it"
        yield Choice("generation_config.do_sample", True, why)

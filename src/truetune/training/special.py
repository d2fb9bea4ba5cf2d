"""Special ids: the tokenizer, the model's config and its generation config say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from truetune.training.recipe import Choice


def aligned(model: Any, tokenizer: Any, stops: Iterable[int]) -> Iterator[Choice]:
    """Set the ids of pad, BOS and EOS as the tokenizer has them; `generation_config` stops at every one of `stops`.

    The tokenizer's EOS stays as published: templates write it. transformers, vLLM and SGLang stop at all EOS ids of
    the generation config.
    """
    generation, holders = model.generation_config, [model.config.get_text_config(), model.config]
    for name in ("bos_token_id", "pad_token_id"):
        id, was = getattr(tokenizer, name), getattr(holders[0], name, None)
        if id is not None:
            for holder in (*holders, generation):
                setattr(holder, name, id)
            if was not in (id, None):
                yield Choice(name, id, f"as the tokenizer has it; config said {was}")
    for holder in holders:
        if (id := tokenizer.eos_token_id) is not None and id not in _ids(
            getattr(holder, "eos_token_id", None)
        ):
            holder.eos_token_id = id
    yield from _stopping(generation, stops, tokenizer)
    yield from _valid(generation)


def _stopping(generation: Any, stops: Iterable[int], tokenizer: Any) -> Iterator[Choice]:
    before = _ids(generation.eos_token_id)
    missing = sorted({*stops, *_ids(tokenizer.eos_token_id)} - before)
    if missing:
        all_ = sorted({*before, *missing})
        generation.eos_token_id = all_ if len(all_) > 1 else all_[0]
        spelled = " ".join(str(tokenizer.convert_ids_to_tokens(id)) for id in missing)
        yield Choice(
            "generation_config.eos_token_id", generation.eos_token_id, f"{spelled} ends a turn too"
        )


def _ids(value: int | list[int] | None) -> set[int]:
    return set() if value is None else {value} if isinstance(value, int) else set(value)


def _valid(generation: Any) -> Iterator[Choice]:
    """A generation config that transformers would refuse to save ends a run at its first checkpoint."""
    try:
        generation.validate(strict=True)
    except ValueError:
        generation.do_sample = True
        why = "transformers does not save the published settings (temperature, top_p) without it"
        yield Choice("generation_config.do_sample", True, why)

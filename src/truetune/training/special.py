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
    config, generation = model.config.get_text_config(), model.generation_config
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        id = getattr(tokenizer, name)
        if id is None:
            continue
        before = [getattr(holder, name, None) for holder in (config, generation)]
        setattr(config, name, id)
        if model.config is not config and getattr(model.config, name, id) != id:
            setattr(model.config, name, id)
        if name != "eos_token_id":
            setattr(generation, name, id)
        changed = [value for value in before if value not in (id, None) and not isinstance(value, list)]
        if name != "eos_token_id" and changed:
            yield Choice(name, id, f"as the tokenizer has it; config said {changed[0]}")
    yield from _stopping(generation, stops, tokenizer)
    yield from _valid(generation)


def _stopping(generation: Any, stops: Iterable[int], tokenizer: Any) -> Iterator[Choice]:
    published = generation.eos_token_id
    before = set(published if isinstance(published, list) else [] if published is None else [published])
    all_ = sorted({*before, *stops, *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])})
    if not all_:
        return
    generation.eos_token_id = all_ if len(all_) > 1 else all_[0]
    if missing := sorted(set(all_) - before):
        spelled = " ".join(str(tokenizer.convert_ids_to_tokens(id)) for id in missing)
        yield Choice("generation_config.eos_token_id", generation.eos_token_id, f"{spelled} ends a turn too")


def _valid(generation: Any) -> Iterator[Choice]:
    """A generation config that transformers would refuse to save ends a run at its first checkpoint."""
    try:
        generation.validate(strict=True)
    except ValueError:
        generation.do_sample = True
        why = "transformers does not save the published settings (temperature, top_p) without it"
        yield Choice("generation_config.do_sample", True, why)

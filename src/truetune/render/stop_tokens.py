"""The tokens that end a turn, and who says so.

Stop tokens are a set: the tokenizer, generation_config.json, config.json and the chat template each name some, and
they often differ (Llama 3's template ends turns with `<|eot_id|>`, its config says `<|end_of_text|>`). All count, each
with its origins, so that rules can say who contradicts whom. The trade-off: a file that names a wrong token makes it a
stop token here too; better than a turn that is taken for one without an end.
"""

from __future__ import annotations

from truetune.render.tokenizer import SpecialToken, StopToken, Tokenizer


def find_stop_tokens(
    tokenizer: Tokenizer, terminator: SpecialToken | None = None
) -> tuple[StopToken, ...]:
    """EOS of the tokenizer, generation_config and config, and the token that the chat template ends turns with.

    Args:
        tokenizer: its files.
        terminator: what the chat template was seen to write behind an answer (`Probes.terminator`); None for nothing.

    Returns:
        One entry for each id, in the order of the origins named above; ids beyond the vocabulary are left out.
    """
    origins: dict[int, list[str]] = {}
    if "eos" in tokenizer.special:
        origins[tokenizer.special["eos"].id] = ["tokenizer"]
    generation = tokenizer.generation_config or {}
    for origin, value in (
        ("generation_config", generation.get("eos_token_id")),
        ("config", tokenizer.model_config.get("eos_token_id")),
        ("template", terminator.id if terminator else None),
    ):
        for id in value if isinstance(value, list) else [value]:
            if isinstance(id, int):
                origins.setdefault(id, []).append(origin)
    spelled = {id: tokenizer.backend.id_to_token(id) for id in origins}
    return tuple(
        StopToken(token, id, tuple(origins[id]))
        for id, token in spelled.items()
        if token is not None
    )

"""The tokens that end a turn, and who says so."""

from __future__ import annotations

from truetune.render.tokenizer import Special, Stop, Tokenizer


def find_stop_tokens(tokenizer: Tokenizer, terminator: Special | None = None) -> tuple[Stop, ...]:
    """EOS of the tokenizer, generation_config and config, and the token that the chat template ends turns with."""
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
        Stop(token, id, tuple(origins[id])) for id, token in spelled.items() if token is not None
    )

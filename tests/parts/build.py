"""tokenizer.json from what packages ship instead: SentencePiece models, GGUF vocabularies, ranks of bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

Json = dict[str, Any]
Kind = Literal["normal", "unknown", "control", "byte"]

SPACE = "\u2581"
BYTE_LEVEL_DECODER: Json = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
BYTE_LEVEL_GPT2: Json = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
SPACE_BACK: Json = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}


def added_token(id_: int, content: str, special: bool = True) -> Json:
    """An entry of `added_tokens`."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id_, "content": content, **flags, "special": special}


def tokenizer(
    model: Json,
    added_tokens: list[Json],
    *,
    normalizer: Json | None = None,
    pre: Json | None = None,
    post: Json | None = None,
    decoder: Json | None = None,
) -> Json:
    """A whole tokenizer.json."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": post,
        "decoder": decoder,
        "model": model,
    }


def bpe(vocab: dict[str, int], merges: list[list[str]], **settings: object) -> Json:
    """The `model` part: byte-pair encoding."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": merges,
        **settings,
    }


def bos_processor(token: str, id_: int) -> Json:
    """A post-processor that writes BOS before each sequence."""

    def special(type_id: int) -> Json:
        return {"SpecialToken": {"id": token, "type_id": type_id}}

    first, second = (
        {"Sequence": {"id": name, "type_id": type_id}} for type_id, name in enumerate("AB")
    )
    return {
        "type": "TemplateProcessing",
        "single": [special(0), first],
        "pair": [special(0), first, special(1), second],
        "special_tokens": {token: {"id": token, "ids": [id_], "tokens": [token]}},
    }


def split_pre_tokenizer(pattern: str) -> Json:
    """Split by a pattern, then to byte-level characters."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, BYTE_LEVEL_GPT2 | {"use_regex": False}]}


def from_pieces(pieces: list[tuple[str, float, Kind]], bos: str) -> Json:
    """From SentencePiece pieces (text, score, kind), with Llama's way of writing spaces."""
    vocab = {text: i for i, (text, _, _) in enumerate(pieces)}
    scored: list[tuple[str, str, float]] = []
    for text, score, kind in pieces:
        if kind == "normal":
            pairs = ((text[:i], text[i:]) for i in range(1, len(text)))
            known = sorted(
                (vocab[a], vocab[b], a, b) for a, b in pairs if a in vocab and b in vocab
            )
            scored += [(a, b, score) for _, _, a, b in known]
    scored.sort(key=lambda merge: merge[2], reverse=True)
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return tokenizer(
        bpe(vocab, [[a, b] for a, b, _ in scored], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        [added_token(i, text) for i, (text, _, kind) in enumerate(pieces) if kind in ("control", "unknown")],
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": SPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        ]},
        post=bos_processor(bos, vocab[bos]),
        decoder={"type": "Sequence", "decoders": [SPACE_BACK, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
    )  # fmt: skip


def from_sentencepiece(path: Path, bos: str) -> Json:
    """From a SentencePiece model file."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def kind(i: int) -> Kind:
        if model.is_unknown(i):
            return "unknown"
        if model.is_control(i):
            return "control"
        return "byte" if model.is_byte(i) else "normal"

    return from_pieces(
        [(model.id_to_piece(i), model.get_score(i), kind(i)) for i in range(model.vocab_size())],
        bos,
    )


def gguf_fields(path: Path, *names: str) -> list[Any]:
    """The contents of the fields `tokenizer.<name>` of a GGUF file."""
    from gguf import GGUFReader

    fields = GGUFReader(str(path)).fields
    return [fields[f"tokenizer.{name}"].contents() for name in names]


def gguf_bpe(path: Path) -> tuple[dict[str, int], list[list[str]], list[tuple[int, str, int]]]:
    """(vocab, merges, [(id, token, GGUF token type)]) of a GGUF file with merges."""
    tokens, types, merges = gguf_fields(path, "ggml.tokens", "ggml.token_type", "ggml.merges")
    listed = [(i, token, kind) for i, (token, kind) in enumerate(zip(tokens, types, strict=True))]
    return {token: i for i, token, _ in listed}, [merge.split(" ", 1) for merge in merges], listed


def from_gguf_pieces(path: Path, bos: str) -> Json:
    """From a GGUF file that holds SentencePiece pieces."""
    tokens, scores, types = gguf_fields(path, "ggml.tokens", "ggml.scores", "ggml.token_type")
    kinds: dict[int, Kind] = {
        1: "normal",
        2: "unknown",
        3: "control",
        4: "control",
        5: "control",
        6: "byte",
    }
    return from_pieces(
        [(t, s, kinds[k]) for t, s, k in zip(tokens, scores, types, strict=True)], bos
    )


def _byte_characters() -> list[str]:
    """GPT-2's printable character for each byte."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def ranks_to_bpe(
    ranks: dict[bytes, int], offset: int = 0
) -> tuple[dict[str, int], list[list[str]]]:
    """(vocab, merges) in byte-level characters, from the rank of each byte string; ids start at `offset`."""
    characters = _byte_characters()

    def text(piece: bytes) -> str:
        return "".join(map(characters.__getitem__, piece))

    merges: list[list[str]] = []
    for piece, _ in sorted(ranks.items(), key=lambda item: item[1]):
        pairs: Iterable[tuple[bytes, bytes]] = (
            (piece[:i], piece[i:]) for i in range(1, len(piece))
        )
        known = sorted((ranks[a], ranks[b], a, b) for a, b in pairs if a in ranks and b in ranks)
        merges += [[text(a), text(b)] for _, _, a, b in known]
    return {text(piece): rank + offset for piece, rank in ranks.items()}, merges

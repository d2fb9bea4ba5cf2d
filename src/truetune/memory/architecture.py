"""Architecture: the matrices of a decoder and how many parameters they hold, from config.json alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from truetune.checkpoint.safetensors_header import BrokenFile, read_header
from truetune.errors import SpecError
from truetune.memory.architecture_families import ALIASES, FAMILIES, Family
from truetune.parsing.json_reader import read_json
from truetune.parsing.limits import MODEL_FILE

Part = Literal["embedding", "attention", "mlp", "experts", "norms", "head", "other"]
MAX_FIELD = 1 << 40
"""No field of a real model is larger; a hostile file's may be."""
MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight of `inputs` x `outputs`."""

    name: str
    part: Part
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    """Experts are one tensor with so many of them."""
    linear: bool = True
    """It is an nn.Linear, which quantization and LoRA find; fused experts and routers are not."""

    @property
    def weight(self) -> int:
        """Parameters without the bias"""
        return self.copies * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """All parameters"""
        return self.weight + self.copies * self.outputs * self.bias


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: attention and MLP."""

    matrices: tuple[Matrix, ...]
    vectors: int
    """Parameters of norms and sinks"""
    heads: int
    kv_heads: int
    query: int
    """Width of all queries; keys of all query heads are as wide."""
    key: int
    """Width of the keys as they are cached, over all heads"""
    value: int
    """Width of the values as they are cached, over all heads"""
    mixed: int
    """Width of what attention gives to the output matrix"""
    ranks: tuple[int, ...] = ()
    """Widths of latent projections (MLA)"""
    width: int = 0
    """Width of the dense MLP, shared experts with it"""
    chosen: int = 0
    """Experts for each token"""
    expert_width: int = 0
    window: int | None = None
    """Sliding window in tokens"""

    @property
    def parameters(self) -> int:
        """All parameters"""
        return self.vectors + sum(matrix.parameters for matrix in self.matrices)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A causal language model."""

    model_type: str
    family: Family
    hidden: int
    vocabulary: int
    """Rows of the embedding"""
    blocks: tuple[Block, ...]
    tied: bool
    head_bias: bool
    embedding: int
    """Parameters of token and position embeddings"""
    final: int
    """Parameters of the norms outside the blocks"""
    other: int
    """Parameters that are no part of the decoder: a vision tower, or what the files hold beyond the arithmetic"""
    dtype: str
    """Of the weights, as config.json says: `bfloat16`"""
    softcap: bool
    """Scores pass through tanh (Gemma 2); attention is eager then."""
    dropout: float
    """Of the attention"""
    notes: tuple[str, ...] = ()

    @property
    def head(self) -> int:
        """Parameters of the head; 0 where it is the embedding."""
        return (
            0 if self.tied else self.hidden * self.vocabulary
        ) + self.head_bias * self.vocabulary

    @property
    def parameters(self) -> int:
        """All parameters"""
        return sum(self.parts().values())

    def parts(self) -> dict[Part, int]:
        """Parameters by part."""
        matrices = [matrix for block in self.blocks for matrix in block.matrices]
        of: dict[Part, int] = {
            part: sum(m.parameters for m in matrices if m.part == part)
            for part in ("attention", "mlp", "experts")
        }
        norms = self.final + sum(block.vectors for block in self.blocks)
        return {
            "embedding": self.embedding,
            **of,
            "norms": norms,
            "head": self.head,
            "other": self.other,
        }

    def matrices(self) -> Iterator[Matrix]:
        """The matrices of all blocks."""
        for block in self.blocks:
            yield from block.matrices


class ConfigFields:
    """config.json, with other spellings of a field and the defaults of a family. Raises SpecError."""

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any], where: str) -> None:
        self.values, self.defaults, self.where = values, defaults, where

    def get(self, name: str) -> Any:
        """The first spelling that has a value"""
        spellings = (name, *ALIASES.get(name, ()))
        found = [
            self.values[spelling] for spelling in spellings if self.values.get(spelling) is not None
        ]
        return found[0] if found else self.defaults.get(name)

    def number(self, name: str, default: int | None = None) -> int:
        """A count; an error where there is neither value nor default."""
        value = self.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_FIELD:
            found = "nothing" if value is None else repr(value)[:40]
            raise SpecError(f"{self.where}: {name}: expected a whole number, found {found}")
        return value


def read_architecture(path: str | Path) -> Architecture:
    """The architecture of a model folder or of a config.json; parameters are counted in its safetensors, if any.

    Raises SpecError.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    try:
        values = read_json(file, MODEL_FILE)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(f"{file}: expected a model folder or its config.json: {reason}") from None
    if not isinstance(values, dict):
        raise SpecError(f"{file}: expected a JSON object, found {type(values).__name__}")
    made = parse_architecture(values, str(file))
    held = count_file_parameters(file.parent)
    if held is None or held == made.parameters:
        return made
    note = f"its safetensors hold {held:,} parameters; by config.json there are {made.parameters:,}"
    return replace(
        made, other=max(0, made.other + held - made.parameters), notes=(*made.notes, note)
    )


def parse_architecture(config: Mapping[str, Any], where: str = "config.json") -> Architecture:
    """The architecture that config.json describes. Raises SpecError for a field that is missing or no number."""
    inner = config.get("text_config")
    values: Mapping[str, Any] = {**config, **inner} if isinstance(inner, Mapping) else config
    kind = str(values.get("model_type", ""))
    kind = kind if kind in FAMILIES or f"{kind}_text" not in FAMILIES else f"{kind}_text"
    family = FAMILIES.get(kind, Family())
    fields = ConfigFields(values, family.defaults, where)
    hidden, vocabulary = fields.number("hidden_size"), fields.number("vocab_size")
    layers = fields.number("num_hidden_layers")
    if layers > MAX_LAYERS:
        raise SpecError(f"{where}: num_hidden_layers: {layers:,} is more than a model has")
    notes = (
        []
        if kind in FAMILIES
        else [f"model_type {kind or '(none)'} is not known; taken for one like Llama"]
    )
    types = values.get("layer_types")
    odd = (
        sorted({str(t) for t in types if "linear" in str(t) or "mamba" in str(t)})
        if isinstance(types, list)
        else []
    )
    notes += [f"{', '.join(odd)} layers are counted as attention"] if odd else []
    vision, said = _count_vision_tower(config, where)
    tied = values.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    positions = (
        0
        if family.positions is None
        else fields.number("max_position_embeddings") + family.positions
    )
    width = fields.number("word_embed_proj_dim", hidden)
    dropout = values.get("attention_dropout") or values.get("attn_pdrop")
    return Architecture(
        model_type=kind,
        family=family,
        hidden=hidden,
        vocabulary=vocabulary,
        blocks=tuple(_make_block(fields, family, hidden, i) for i in range(layers)),
        tied=family.tied if tied is None else bool(tied),
        head_bias="head" in family.biased,
        embedding=vocabulary * width + positions * hidden,
        final=family.outside * hidden * (1 + family.norm_bias),
        other=vision,
        dtype=str(
            fields.get("dtype") or config.get("dtype") or config.get("torch_dtype") or "float32"
        ),
        softcap=bool(values.get("attn_logit_softcapping")),
        dropout=dropout if isinstance(dropout, float) else 0.0,
        notes=(*notes, *said),
    )


def count_file_parameters(folder: Path) -> int | None:
    """Parameters in the weights of a model folder; None where there are none, or quantized ones."""
    total = 0
    for path in sorted(folder.glob("model*.safetensors")):
        try:
            tensors = read_header(path).tensors
        except (BrokenFile, OSError):
            return None
        if any(tensor.dtype not in ("BF16", "F16", "F32") for tensor in tensors):
            return None
        total += sum(tensor.items for tensor in tensors)
    return total or None


def _make_block(fields: ConfigFields, family: Family, hidden: int, layer: int) -> Block:
    heads = max(1, fields.number("num_attention_heads"))
    kv_heads = _kv_heads(fields, heads)
    head = fields.number("head_dim", hidden // heads)
    query, key = heads * head, kv_heads * head
    value, mixed = key, query
    ranks: tuple[int, ...] = ()
    biased = set(family.biased)
    if fields.get("attention_bias"):
        biased |= {"qkv", "out"} - family.unbiased
    biased |= {"qkv"} if fields.get("use_qkv_bias") or fields.get("qkv_bias") else set()
    biased |= {"up", "down"} if fields.get("mlp_bias") else set()
    biased |= {"qkv", "out", "up", "down"} if fields.get("bias") is True else set()
    biased -= {"qkv", "out", "up", "down"} if fields.get("use_bias") is False else set()
    if fields.get("kv_lora_rank"):
        latent = _latent_attention(fields, hidden, heads, "qkv" in biased)
        attention, ranks, query, value, mixed = latent
        key = query
        kv_heads = heads
    elif len(family.qkv) == 1:
        attention = [Matrix(family.qkv[0], "attention", hidden, query + 2 * key, "qkv" in biased)]
    else:
        sizes = zip(family.qkv, (query, key, key), strict=True)
        attention = [
            Matrix(name, "attention", hidden, size, "qkv" in biased) for name, size in sizes
        ]
    attention.append(Matrix(family.out, "attention", mixed, hidden, "out" in biased))
    norms = 2 if family.norms == 1 and fields.get("new_decoder_architecture") else family.norms
    vectors = norms * hidden * (1 + family.norm_bias) + sum(ranks) + heads * family.sinks
    if family.qk_norm and not ranks:
        vectors += 2 * head if family.qk_norm == "head" else query + key
    mlp, width, chosen, expert_width = _mlp_matrices(fields, family, hidden, layer, biased)
    return Block(
        (*attention, *mlp),
        vectors,
        heads,
        kv_heads,
        query,
        key,
        value,
        mixed,
        ranks,
        width,
        chosen,
        expert_width,
        _window_of_layer(fields, layer),
    )


def _kv_heads(fields: ConfigFields, heads: int) -> int:
    """Falcon and GPT-BigCode say `multi_query`: one head of keys and values, except in Falcon's newer blocks."""
    if fields.get("multi_query") and not fields.get("new_decoder_architecture"):
        return 1
    if fields.get("multi_query") is False and not fields.get("new_decoder_architecture"):
        return heads
    return max(1, fields.number("num_key_value_heads", heads))


def _latent_attention(
    fields: ConfigFields, hidden: int, heads: int, bias: bool
) -> tuple[list[Matrix], tuple[int, ...], int, int, int]:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): matrices, ranks, three widths."""
    rank, rope = fields.number("kv_lora_rank"), fields.number("qk_rope_head_dim")
    plain, value = fields.number("qk_nope_head_dim"), fields.number("v_head_dim")
    query, q_rank = heads * (plain + rope), fields.number("q_lora_rank", 0)
    found = [
        Matrix("kv_a_proj_with_mqa", "attention", hidden, rank + rope, bias),
        Matrix("kv_b_proj", "attention", rank, heads * (plain + value)),
    ]
    if not q_rank:
        return (
            [Matrix("q_proj", "attention", hidden, query), *found],
            (rank,),
            query,
            heads * value,
            heads * value,
        )
    queries = [
        Matrix("q_a_proj", "attention", hidden, q_rank, bias),
        Matrix("q_b_proj", "attention", q_rank, query),
    ]
    return [*queries, *found], (q_rank, rank), query, heads * value, heads * value


def _mlp_matrices(
    fields: ConfigFields, family: Family, hidden: int, layer: int, biased: set[str]
) -> tuple[list[Matrix], int, int, int]:
    """Matrices; widths of the dense MLP and of an expert; experts for each token."""
    experts = fields.number("experts", 0)
    dense = fields.number("intermediate_size", 4 * hidden)
    if experts < 2 or not _is_mixture(fields, layer):
        return _dense_matrices(family, hidden, dense, biased), dense, 0, 0
    width = fields.number("moe_intermediate_size", dense)
    chosen = fields.number("chosen", 2)
    bias = "experts" in biased
    shared = fields.number(
        "shared_expert_intermediate_size", fields.number("n_shared_experts", 0) * width
    )
    found = [
        Matrix("router", "experts", hidden, experts, "router" in biased, linear=False),
        Matrix("gate_up_proj", "experts", hidden, 2 * width, bias, experts, linear=False),
        Matrix("experts.down_proj", "experts", width, hidden, bias, experts, linear=False),
    ]
    if shared:
        found += _dense_matrices(family, hidden, shared, biased)
        found += [Matrix("shared_expert_gate", "mlp", hidden, 1)] if family.shared_gate else []
    return found, shared, chosen, width


def _dense_matrices(family: Family, hidden: int, width: int, biased: set[str]) -> list[Matrix]:
    fused = family.gated and len(family.up) == 1
    up = [Matrix(name, "mlp", hidden, width * (1 + fused), "up" in biased) for name in family.up]
    return [*up, Matrix(family.down, "mlp", width, hidden, "down" in biased)]


def _is_mixture(fields: ConfigFields, layer: int) -> bool:
    only = fields.get("mlp_only_layers")
    only = only if isinstance(only, list) else ()
    step = fields.number("decoder_sparse_step", 1) or 1
    return (
        layer >= fields.number("first_k_dense_replace", 0)
        and layer not in only
        and (layer + 1) % step == 0
    )


def _window_of_layer(fields: ConfigFields, layer: int) -> int | None:
    """Tokens that this layer sees; None where it sees all."""
    window, types = fields.get("sliding_window"), fields.get("layer_types")
    if not isinstance(window, int) or window < 1 or fields.get("use_sliding_window") is False:
        return None
    if isinstance(types, list) and layer < len(types):
        return window if types[layer] == "sliding_attention" else None
    pattern = fields.get("sliding_window_pattern")
    if isinstance(pattern, int) and pattern > 1:
        return window if (layer + 1) % pattern else None
    return window


def _count_vision_tower(config: Mapping[str, Any], where: str) -> tuple[int, list[str]]:
    """Parameters of an image encoder as a plain ViT (4 h^2 + 2 h f a layer), and a note that says so."""
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        return 0, []
    fields = ConfigFields(tower, {}, f"{where}: vision_config")
    hidden, layers = (
        fields.number("hidden_size", 0),
        fields.number("num_hidden_layers", fields.number("depth", 0)),
    )
    width = fields.number("intermediate_size", 4 * hidden)
    total = layers * (4 * hidden**2 + 2 * hidden * width)
    return total, [f"its image encoder is counted as a plain ViT of {total:,} parameters, frozen"]

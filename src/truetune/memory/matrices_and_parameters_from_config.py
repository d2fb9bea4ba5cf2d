"""Reads from config.json alone the architecture of a model: the matrices of a decoder, and how many parameters they
hold.

What config.json does not say (names, norms, biases) is in the table of `model_family_layouts`. Nothing is downloaded
or built, so that a plan takes milliseconds and needs no torch. The trade-off: a family that is not in the table is
taken for one like Llama, and where weights are available their count corrects the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.checkpoint.read_and_check_safetensors_header import (
    BrokenFile,
    read_safetensors_header,
)
from truetune.errors import SpecError
from truetune.memory.model_family_layouts import ALIASES, FAMILIES, Family
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json

Part = Literal["embedding", "attention", "mlp", "experts", "norms", "head", "other"]
MAX_FIELD = 1 << 40
"""No field of a real model is larger; a hostile file's may be."""
# Chosen, not measured: no published decoder has a thousand; a hostile file of 10^9 would fill the memory with blocks.
MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight matrix of `inputs` x `outputs`."""

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
    def weight_parameter_count(self) -> int:
        """The number of parameters without the bias."""
        return self.copies * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """The number of all parameters of the matrix, with its bias."""
        return self.weight_parameter_count + self.copies * self.outputs * self.bias


@dataclass(frozen=True, slots=True)
class Block:
    """One layer of a decoder: attention and MLP."""

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
        """The number of all parameters of the layer."""
        return self.vectors + sum(matrix.parameters for matrix in self.matrices)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A causal language model: its blocks, widths and vocabulary."""

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
    def head_parameter_count(self) -> int:
        """The number of parameters of the head; 0 where it is the embedding."""
        return (
            0 if self.tied else self.hidden * self.vocabulary
        ) + self.head_bias * self.vocabulary

    @property
    def parameters(self) -> int:
        """The number of all parameters of the model."""
        return sum(self.parameter_counts_by_part().values())

    def parameter_counts_by_part(self) -> dict[Part, int]:
        """The number of parameters of each part."""
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
            "head": self.head_parameter_count,
            "other": self.other,
        }

    def matrices(self) -> Iterator[Matrix]:
        """The matrices of all blocks."""
        for block in self.blocks:
            yield from block.matrices


class ConfigFields:
    """The fields of config.json, with other spellings of a field and the defaults of a family.
    Raises SpecError.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any], where: str) -> None:
        self.values, self.defaults, self.where = values, defaults, where

    def get(self, name: str) -> Any:
        """The value of the first spelling that has one, else the default of the family."""
        for spelling in (name, *ALIASES.get(name, ())):
            if self.values.get(spelling) is not None:
                return self.values[spelling]
        return self.defaults.get(name)

    def number(self, name: str, default: int | None = None) -> int:
        """A field that is a count; an error where there is neither value nor default."""
        value = self.get(name)
        if value is None:
            value = default
        # True is an int in Python, and no count.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_FIELD:
            actual = "nothing" if value is None else repr(value)[:40]
            raise SpecError(f"{self.where}: {name}: expected a whole number, found {actual}")
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
    architecture = parse_architecture(values, str(file))
    in_files = count_stored_parameters(file.parent)
    by_config = architecture.parameters
    if in_files is None or in_files == by_config:
        return architecture
    # What the files hold beyond the arithmetic is on the GPU as well: an encoder, or a head of another task.
    note = f"its safetensors hold {in_files:,} parameters; by config.json there are {by_config:,}"
    return replace(
        architecture,
        other=max(0, architecture.other + in_files - by_config),
        notes=(*architecture.notes, note),
    )


def parse_architecture(config: Mapping[str, Any], where: str = "config.json") -> Architecture:
    """The architecture that config.json describes.

    Args:
        config: its values.
        where: names it in errors.

    Raises:
        SpecError: a field is missing or no number.
    """
    # Models with an image encoder keep the decoder's fields in a part of their own.
    inner = config.get("text_config")
    values: Mapping[str, Any] = {**config, **inner} if isinstance(inner, Mapping) else config
    model_type = _model_type_in_table(str(values.get("model_type", "")))
    family = FAMILIES.get(model_type, Family())
    fields = ConfigFields(values, family.defaults, where)
    hidden, vocabulary = fields.number("hidden_size"), fields.number("vocab_size")
    layers = fields.number("num_hidden_layers")
    if layers > MAX_LAYERS:
        raise SpecError(f"{where}: num_hidden_layers: {layers:,} is more than a model has")
    vision, vision_notes = _vision_tower_parameter_count_and_notes(config, where)
    tied = values.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    positions = 0
    if family.positions is not None:
        positions = fields.number("max_position_embeddings") + family.positions
    # OPT-350m has an embedding that is narrower than its stream.
    width = fields.number("word_embed_proj_dim", hidden)
    dropout = values.get("attention_dropout") or values.get("attn_pdrop")
    return Architecture(
        model_type=model_type,
        family=family,
        hidden=hidden,
        vocabulary=vocabulary,
        blocks=tuple(_make_block(fields, family, hidden, i) for i in range(layers)),
        tied=family.tied if tied is None else bool(tied),
        head_bias="head" in family.biased,
        embedding=vocabulary * width + positions * hidden,
        final=family.outside * hidden * (1 + family.norm_bias),
        other=vision,
        dtype=_weight_dtype(fields, config),
        softcap=bool(values.get("attn_logit_softcapping")),
        dropout=dropout if isinstance(dropout, float) else 0.0,
        notes=(*_note_unknown_parts(model_type, values.get("layer_types")), *vision_notes),
    )


def _model_type_in_table(model_type: str) -> str:
    """The type as the table names it: decoders of models with an image encoder may end with `_text`."""
    with_text = f"{model_type}_text"
    return with_text if model_type not in FAMILIES and with_text in FAMILIES else model_type


def _weight_dtype(fields: ConfigFields, config: Mapping[str, Any]) -> str:
    """The dtype of the weights, by the decoder's part, then by the whole file; torch's own default
    where neither says it.
    """
    dtype = fields.get("dtype") or config.get("dtype") or config.get("torch_dtype")
    return str(dtype or "float32")


def _note_unknown_parts(model_type: str, layer_types: Any) -> Iterator[str]:
    """Notes on parts of the model that are counted as something that they are not."""
    if model_type not in FAMILIES:
        yield f"model_type {model_type or '(none)'} is not known; taken for one like Llama"
    types = {str(t) for t in layer_types} if isinstance(layer_types, list) else set()
    # Linear attention and Mamba have other matrices, of about the same size.
    odd = sorted(t for t in types if "linear" in t or "mamba" in t)
    if odd:
        yield f"{', '.join(odd)} layers are counted as attention"


def count_stored_parameters(folder: Path) -> int | None:
    """Parameters in the weights of a model folder; None where there are none, or quantized ones."""
    total = 0
    for path in sorted(folder.glob("model*.safetensors")):
        try:
            tensors = read_safetensors_header(path).tensors
        except (BrokenFile, OSError):
            return None
        # Packed weights of 4 bits are half as many items as parameters.
        if any(tensor.dtype not in ("BF16", "F16", "F32") for tensor in tensors):
            return None
        total += sum(tensor.value_count for tensor in tensors)
    return total or None


def _make_block(fields: ConfigFields, family: Family, hidden: int, layer: int) -> Block:
    """One layer, with all of its matrices."""
    heads = max(1, fields.number("num_attention_heads"))
    biased = _biased_matrices(fields, family)
    shape = _attention_shape(fields, family, hidden, heads, "qkv" in biased)
    output = Matrix(family.out, "attention", shape.mixed, hidden, "out" in biased)
    mlp = _mlp_shape(fields, family, hidden, layer, biased)
    # Falcon's newer blocks have a norm for each of their parallel branches.
    norms = 2 if family.norms == 1 and fields.get("new_decoder_architecture") else family.norms
    vectors = norms * hidden * (1 + family.norm_bias) + sum(shape.ranks) + heads * family.sinks
    if family.qk_norm and not shape.ranks:
        vectors += 2 * shape.head if family.qk_norm == "head" else shape.query + shape.key
    return Block(
        matrices=(*shape.matrices, output, *mlp.matrices),
        vectors=vectors,
        heads=heads,
        kv_heads=shape.kv_heads,
        query=shape.query,
        key=shape.key,
        value=shape.value,
        mixed=shape.mixed,
        ranks=shape.ranks,
        width=mlp.width,
        chosen=mlp.chosen,
        expert_width=mlp.expert_width,
        window=_attention_window_of_layer(fields, layer),
    )


def _biased_matrices(fields: ConfigFields, family: Family) -> set[str]:
    """Which matrices (qkv, out, up, down, ...) have a bias: by the family, then by each of the spellings of files."""
    all_four = {"qkv", "out", "up", "down"}
    biased = set(family.biased)
    if fields.get("attention_bias"):
        biased |= {"qkv", "out"} - family.unbiased
    if fields.get("use_qkv_bias") or fields.get("qkv_bias"):
        biased.add("qkv")
    if fields.get("mlp_bias"):
        biased |= {"up", "down"}
    if fields.get("bias") is True:
        biased |= all_four
    if fields.get("use_bias") is False:
        biased -= all_four
    return biased


class _AttentionShape(NamedTuple):
    """The matrices of attention without its output, and the widths as in `Block`."""

    matrices: list[Matrix]
    kv_heads: int
    head: int
    """Width of one head"""
    query: int
    key: int
    value: int
    mixed: int
    ranks: tuple[int, ...] = ()


def _attention_shape(
    fields: ConfigFields, family: Family, hidden: int, heads: int, bias: bool
) -> _AttentionShape:
    """The matrices of attention: latent attention where the file has its rank, else one or three
    matrices as the family has them.
    """
    head = fields.number("head_dim", hidden // heads)
    if fields.get("kv_lora_rank"):
        return _latent_attention_shape(fields, hidden, heads, head, bias)
    kv_heads = _key_value_heads(fields, heads)
    query, key = heads * head, kv_heads * head
    if len(family.qkv) == 1:
        matrices = [Matrix(family.qkv[0], "attention", hidden, query + 2 * key, bias)]
    else:
        sizes = zip(family.qkv, (query, key, key), strict=True)
        matrices = [Matrix(name, "attention", hidden, size, bias) for name, size in sizes]
    return _AttentionShape(matrices, kv_heads, head, query, key, value=key, mixed=query)


def _key_value_heads(fields: ConfigFields, heads: int) -> int:
    """The number of key and value heads. Falcon and GPT-BigCode say `multi_query`: one head of keys
    and values, except in Falcon's newer blocks.
    """
    if fields.get("multi_query") and not fields.get("new_decoder_architecture"):
        return 1
    if fields.get("multi_query") is False and not fields.get("new_decoder_architecture"):
        return heads
    return max(1, fields.number("num_key_value_heads", heads))


def _latent_attention_shape(
    fields: ConfigFields, hidden: int, heads: int, head: int, bias: bool
) -> _AttentionShape:
    """The matrices of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values
    come from one narrow projection.
    """
    rank, rope = fields.number("kv_lora_rank"), fields.number("qk_rope_head_dim")
    plain, value = fields.number("qk_nope_head_dim"), fields.number("v_head_dim")
    query, query_rank = heads * (plain + rope), fields.number("q_lora_rank", 0)
    keys_and_values = [
        Matrix("kv_a_proj_with_mqa", "attention", hidden, rank + rope, bias),
        Matrix("kv_b_proj", "attention", rank, heads * (plain + value)),
    ]
    # The small models of the family have no narrow projection of queries.
    queries = [Matrix("q_proj", "attention", hidden, query)]
    ranks: tuple[int, ...] = (rank,)
    if query_rank:
        queries = [
            Matrix("q_a_proj", "attention", hidden, query_rank, bias),
            Matrix("q_b_proj", "attention", query_rank, query),
        ]
        ranks = (query_rank, rank)
    width = heads * value
    matrices = [*queries, *keys_and_values]
    return _AttentionShape(matrices, heads, head, query, query, width, width, ranks)


class _MlpShape(NamedTuple):
    """The matrices of an MLP, and the widths as in `Block`."""

    matrices: list[Matrix]
    width: int
    chosen: int
    expert_width: int


def _mlp_shape(
    fields: ConfigFields, family: Family, hidden: int, layer: int, biased: set[str]
) -> _MlpShape:
    """The matrices of an MLP: a dense one, or experts with a router and perhaps shared experts."""
    experts = fields.number("experts", 0)
    dense = fields.number("intermediate_size", 4 * hidden)
    if experts < 2 or not _layer_has_experts(fields, layer):
        return _MlpShape(_dense_matrices(family, hidden, dense, biased), dense, 0, 0)
    width = fields.number("moe_intermediate_size", dense)
    chosen = fields.number("chosen", 2)
    bias = "experts" in biased
    # Qwen says the width of its shared expert, DeepSeek how many there are.
    shared = fields.number(
        "shared_expert_intermediate_size", fields.number("n_shared_experts", 0) * width
    )
    matrices = [
        Matrix("router", "experts", hidden, experts, "router" in biased, linear=False),
        Matrix("gate_up_proj", "experts", hidden, 2 * width, bias, experts, linear=False),
        Matrix("experts.down_proj", "experts", width, hidden, bias, experts, linear=False),
    ]
    if shared:
        matrices += _dense_matrices(family, hidden, shared, biased)
        if family.shared_gate:
            matrices.append(Matrix("shared_expert_gate", "mlp", hidden, 1))
    return _MlpShape(matrices, shared, chosen, width)


def _dense_matrices(family: Family, hidden: int, width: int, biased: set[str]) -> list[Matrix]:
    """The matrices of a dense MLP; gate and up may be one."""
    is_fused = family.gated and len(family.up) == 1
    outputs = 2 * width if is_fused else width
    up = [Matrix(name, "mlp", hidden, outputs, "up" in biased) for name in family.up]
    return [*up, Matrix(family.down, "mlp", width, hidden, "down" in biased)]


def _layer_has_experts(fields: ConfigFields, layer: int) -> bool:
    """Does this layer have experts? Some models have dense layers first, between, or listed by number."""
    only = fields.get("mlp_only_layers")
    only = only if isinstance(only, list) else ()
    # 0 would be a division by zero.
    step = fields.number("decoder_sparse_step", 1) or 1
    return (
        layer >= fields.number("first_k_dense_replace", 0)
        and layer not in only
        and (layer + 1) % step == 0
    )


def _attention_window_of_layer(fields: ConfigFields, layer: int) -> int | None:
    """Tokens that this layer sees; None where it sees all."""
    window, types = fields.get("sliding_window"), fields.get("layer_types")
    if not isinstance(window, int) or window < 1 or fields.get("use_sliding_window") is False:
        return None
    # Newer files list each layer; older ones say that every n-th sees all (Gemma 3: every sixth).
    if isinstance(types, list) and layer < len(types):
        return window if types[layer] == "sliding_attention" else None
    pattern = fields.get("sliding_window_pattern")
    if isinstance(pattern, int) and pattern > 1:
        return window if (layer + 1) % pattern else None
    return window


def _vision_tower_parameter_count_and_notes(
    config: Mapping[str, Any], where: str
) -> tuple[int, list[str]]:
    """(parameters of an image encoder, counted as a plain ViT: 4 h^2 + 2 h f a layer; a note that
    says so).
    """
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

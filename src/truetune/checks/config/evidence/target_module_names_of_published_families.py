"""The layers of published models, by the names of the models: what `target_modules` can mean where no weights are here.

A family is known by the beginning of a published name. Its layers are those of transformers' own class; a test makes
small models of these classes and compares. Qwen 1 and Baichuan, whose repositories bring the code, are known from
their published files alone. Experts, and models with a vision or audio part, are left out. A name says something only
where it is a layer of some family: `my_proj` may be of any model.
"""

from __future__ import annotations

import re

from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    normalized_model_name,
)

LLAMA = frozenset(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
PHI_3 = frozenset(["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])
PHI_2 = frozenset(["q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "Wqkv", "out_proj"])
GPT_2 = frozenset(["c_attn", "c_proj", "c_fc"])
GPT_J = frozenset(["q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out"])
NEOX = frozenset(["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"])
OPT = frozenset(
    ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "project_in", "project_out"]
)
BERT = frozenset(["query", "key", "value", "dense", "out_proj"])
DISTILBERT = frozenset(["q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"])
DEBERTA = frozenset(
    ["query_proj", "key_proj", "value_proj", "in_proj", "pos_proj", "pos_q_proj", "dense"]
)
T5 = frozenset(["q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo"])
BART = frozenset(["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"])
STARCODER_2 = frozenset(["q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"])
QWEN_1 = frozenset(["c_attn", "c_proj", "w1", "w2"])
BAICHUAN = frozenset(["W_pack", "o_proj", "gate_proj", "up_proj", "down_proj"])

LAYERS_OF_FAMILIES = (
    (r"(meta-)?llama-?[23](-[123])?-(1|3|7|8|13|70|405)b(?!.*vision)", LLAMA),
    (r"(tinyllama|vicuna-(7|13)b|codellama|zephyr-7b|smollm[23]?-(?!vlm))", LLAMA),
    (r"mistral-(7b|nemo)", LLAMA),
    (r"qwen(2|2-5|3)-(coder-|math-)?(0-5|0-6|1-5|1-7|3|4|7|8|14|32|72)b", LLAMA),
    (r"qwen-(1-8|1_8|7|14|72)b", QWEN_1),
    (r"gemma-(2-)?(2|7|9|27)b", LLAMA),
    (r"gemma-3-(1b|270m)", LLAMA),
    (r"phi-?(3-mini|3-medium|3-5-mini|4-mini-(instruct|reasoning)|4$|4-bnb)", PHI_3),
    (r"phi-?(2|1-5|1_5)(-|$)", PHI_2),
    (r"(openai-)?(distil)?gpt2(-|$)|starcoder(base)?(-|$)", GPT_2),
    (r"gpt-?j-6b", GPT_J),
    (r"(pythia-|gpt-neox-20b|falcon-(rw-)?(1|7|40|180)b|bloomz?-)", NEOX),
    (r"opt-(125m|350m|1-3b|2-7b|6-7b|13b|30b|66b)", OPT),
    (r"(bert-(base|large)|(distil|xlm-)?roberta-(base|large))", BERT),
    (r"distilbert-", DISTILBERT),
    (r"deberta-", DEBERTA),
    (r"(google-)?(flan-|m)?t5-(v1-1-)?(small|base|large|xl|xxl|3b|11b)", T5),
    (r"(bart-(base|large)|whisper-(tiny|base|small|medium|large))", BART),
    (r"starcoder2-", STARCODER_2),
    (r"baichuan2?-(7|13)b", BAICHUAN),
)
"""The last names of the layers that LoRA adapts, by the beginning of a model's name as
`normalized_model_name` writes it
"""
LAYERS_OF_ALL_FAMILIES = frozenset().union(*(layers for _, layers in LAYERS_OF_FAMILIES))


def layer_names_of_family(model: str) -> frozenset[str] | None:
    """The last names of the layers of a published model; None where its name is of no family that is known."""
    plain = normalized_model_name(model)
    return next((layers for name, layers in LAYERS_OF_FAMILIES if re.match(name, plain)), None)


def targets_of_other_families_only(model: str, targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets that are layers of other families, and none of this model's.

    Empty too where the rest covers every layer of the family: a list for many families then loses nothing.
    """
    layers = layer_names_of_family(model)
    if layers is None:
        return ()
    lasts = {target: target.rpartition(".")[2] for target in targets}
    strange = tuple(
        target
        for target, last in lasts.items()
        if last in LAYERS_OF_ALL_FAMILIES and last not in layers
    )
    is_whole = layers <= set(lasts.values())
    return () if is_whole else strange

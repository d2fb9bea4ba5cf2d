"""Finds a token of its own vocabulary that a model's tokenizer can pad with instead of EOS.

Known from the tokenizer's folder, where it is on this machine, else from the name of the model. The
table holds what `render.choose_pad_token.choose_pad_token` chose for the published tokenizers (tests run
it again), or what their files say. Where neither is known, the remedy is in words that hold for any
tokenizer.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from truetune.cached_for_one_call import cached_for_one_call
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_model_names,
    model_name_arguments,
    normalized_model_name,
)
from truetune.errors import TruetuneError
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec
from truetune.source.parsed_source_file import Module

BY_GOOD_PAD = "good_pad on the published tokenizer"
BY_TOKENIZER_FILES = (
    "read from the published tokenizer files, whose vocabulary is that of Llama 2 or Mistral 7B"
)
BY_TOKENIZER_CONFIG = "pad_token of the published tokenizer_config.json"


class FreePad(NamedTuple):
    """A token that is in the vocabulary of some models, and ends no turn."""

    models: str
    """A pattern for the whole of the model's name, in lower case, with `-` for every other sign"""
    token: str | None
    """None: no token of the vocabulary is free"""
    established: str


QUANTIZED_ENDING = r"(-unsloth)?(-(bnb-4bit|4bit|8bit|awq|gptq.*|fp8|bf16))?"
FREE_PADS = (
    FreePad(r"(meta-)?llama-?3-[123]-\d+b.*", "<|finetune_right_pad_id|>", BY_GOOD_PAD),
    FreePad(r"(meta-)?llama-?3-\d+b.*", "<|reserved_special_token_0|>", BY_GOOD_PAD),
    FreePad(r"llama-?2-\d+b.*", "<unk>", BY_GOOD_PAD),
    FreePad(r"mistral-7b-.*", "<unk>", BY_GOOD_PAD),
    FreePad(r"mistral-nemo-.*", "<pad>", BY_GOOD_PAD),
    FreePad(r"(codellama-|tinyllama-|zephyr-7b-|mixtral-8x7b-).*", "<unk>", BY_TOKENIZER_FILES),
    FreePad(r"gemma-\d.*", "<pad>", BY_GOOD_PAD),
    FreePad(r"qwen2-5-.*instruct" + QUANTIZED_ENDING, "<|endoftext|>", BY_GOOD_PAD),
    FreePad(r"qwen2-5-(coder-|math-)?[\d-]+b" + QUANTIZED_ENDING, "<|vision_pad|>", BY_GOOD_PAD),
    FreePad(
        r"qwen3-[\da-z-]+b-base" + QUANTIZED_ENDING,
        "<|vision_pad|>",
        "the vocabulary is that of Qwen3",
    ),
    FreePad(r"qwen3-(5-)?[\d-]+b.*", "<|endoftext|>", BY_GOOD_PAD),
    FreePad(
        r"(qwen2-[\d-]+b-instruct|qwen1-5-[\d-]+b-chat)" + QUANTIZED_ENDING,
        "<|endoftext|>",
        BY_TOKENIZER_CONFIG,
    ),
    FreePad(r"phi-?3(-5)?-(mini|medium)-.*", "<unk>", BY_GOOD_PAD),
    FreePad(r"phi-?4" + QUANTIZED_ENDING, "<|dummy_85|>", BY_GOOD_PAD),
    FreePad(r"smollm2-.*instruct", "<|endoftext|>", BY_GOOD_PAD),
    FreePad(r"gpt-oss-.*", "<|endoftext|>", BY_GOOD_PAD),
    FreePad(r"deepseek-(v3|r1)((?!distill).)*", "<\uff5c\u2581pad\u2581\uff5c>", BY_GOOD_PAD),
    FreePad(r"(openai-)?(distil)?gpt2(-(medium|large|xl))?", None, BY_GOOD_PAD),
)
"""The first pattern that fits holds. Fine-tunes are not in it: they may have a vocabulary of their own."""

ANY_TOKENIZER = (
    "set pad_token to a token of the vocabulary that ends no turn (<unk>, a reserved one): it needs"
    " no resize; or mask pads by position (attention_mask)"
)
ADD_TOKEN = (
    'no token of this vocabulary is free: add one (add_special_tokens({"pad_token": "<|pad|>"}))'
    " and resize the model's embedding (trainer.model, where the trainer loads it); or mask pads"
    " by position (attention_mask)"
)


class PadAdvice(NamedTuple):
    """What to pad with instead of EOS."""

    token: str | None
    """A token of the vocabulary; None where none is known"""
    remedy: str
    sure: bool
    """Is it the model that the code names, and no default that may give way to another?"""


def advise_pad_token(module: Module, tokenizer: ast.expr | None) -> PadAdvice:
    """The token of its vocabulary that a tokenizer can pad with.

    Args:
        module: The file.
        tokenizer: The tokenizer that gets the pad token, as the file writes it; None where that is not known.
    """
    names = likely_model_names(module, tokenizer)
    known = [free_pad_of_model(name) for name in names]
    tokens = {one.token for one in known if one is not None}
    if not known or None in known or len(tokens) != 1:
        return PadAdvice(None, ANY_TOKENIZER, sure=False)
    token = tokens.pop()
    if token is None:
        return PadAdvice(None, ADD_TOKEN, sure=True)
    remedy = f'set pad_token = "{token}": it is in the vocabulary, so nothing is resized'
    return PadAdvice(token, remedy, _is_loaded_by_written_name(module, tokenizer))


def _is_loaded_by_written_name(module: Module, tokenizer: ast.expr | None) -> bool:
    """Is the tokenizer loaded by a name that the code writes? A default may give way to another
    name.
    """
    nodes = list(model_name_arguments(module, tokenizer))
    origins = [origin.node for node in nodes for origin in module.flow.origins(node)]
    return bool(nodes) and all(
        isinstance(node, ast.Constant)
        and not isinstance(module.scopes.parent.get(node), ast.arguments)
        for node in origins
    )


def free_pad_of_model(name: str) -> FreePad | None:
    """What is known of a model by its folder on this machine, else by its name; None where nothing
    is.
    """
    return _free_pad_of_folder(name) or next(
        (one for one in FREE_PADS if re.fullmatch(one.models, normalized_model_name(name))), None
    )


@cached_for_one_call
def _free_pad_of_folder(name: str) -> FreePad | None:
    """The free pad of a tokenizer whose folder is on this machine; None where it cannot be read."""
    try:
        folder = str(find_tokenizer_folder(name))
        tokenizer = load_tokenizer(folder)
        token, _ = choose_pad_token(tokenizer, make_probes(tokenizer, RunSpec(model=folder)).stops)
    except (TruetuneError, OSError, ValueError):
        return None
    return FreePad(name, token.token if token is not None else None, BY_GOOD_PAD)

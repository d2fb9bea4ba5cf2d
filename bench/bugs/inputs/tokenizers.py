"""Published tokenizers with the faults taken out that they are published with, so that a clean twin is clean."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.parts.lay_out import edition, tokenizer_folder
from tests.parts.shelf import lay

Edits = dict[str, dict[str, Any]]
"""File -> the keys that change"""

CURED: dict[str, Edits] = {
    "qwen2.5-instruct": {
        "generation_config.json": {"eos_token_id": [151645, 151643], "pad_token_id": 151643}
    },
    "qwen3": {"generation_config.json": {"eos_token_id": [151645, 151643], "pad_token_id": 151643}},
    "llama3.1-instruct": {
        "tokenizer_config.json": {"pad_token": "<|finetune_right_pad_id|>"},
        "generation_config.json": {
            "eos_token_id": [128001, 128008, 128009],
            "pad_token_id": 128004,
        },
    },
    "gemma3": {"generation_config.json": {"eos_token_id": [1, 106], "pad_token_id": 0}},
    "mistral-nemo": {
        "tokenizer_config.json": {"pad_token": "<pad>"},
        "generation_config.json": {"eos_token_id": 2, "pad_token_id": 10},
    },
    "mistral-7b-v0.3": {
        "tokenizer_config.json": {"pad_token": "<unk>"},
        "generation_config.json": {"eos_token_id": 2, "pad_token_id": 0},
    },
    "smollm2": {
        "tokenizer_config.json": {"pad_token": "<|endoftext|>"},
        "generation_config.json": {"eos_token_id": 2, "pad_token_id": 0},
    },
    "phi4": {"generation_config.json": {"eos_token_id": 100265, "pad_token_id": 100349}},
    "llama3-base": {"tokenizer_config.json": {"pad_token": "<|reserved_special_token_0|>"}},
    "qwen2.5-base": {"tokenizer_config.json": {"pad_token": "<|fim_pad|>"}},
    "mistral-7b-v0.1": {"tokenizer_config.json": {"pad_token": "<unk>"}},
    "gemma2": {"generation_config.json": {"eos_token_id": [1, 107], "pad_token_id": 0}},
    "gpt2": {"tokenizer_config.json": {"pad_token": "<pad>"}},
    "llama2-base": {"tokenizer_config.json": {"pad_token": "<unk>"}},
    "llama3-instruct": {
        "tokenizer_config.json": {"pad_token": "<|reserved_special_token_0|>"},
        "generation_config.json": {"eos_token_id": [128001, 128009], "pad_token_id": 128002},
    },
    "deepseek-v4": {"tokenizer_config.json": {"pad_token": "<｜▁pad▁｜>"}},
    "qwen3.5": {
        "generation_config.json": {"eos_token_id": [248046, 248044], "pad_token_id": 248044}
    },
    "deepseek-r1": {"tokenizer_config.json": {"pad_token": "<｜▁pad▁｜>"}},
}
"""Family -> what is edited in its folder"""


def folder(family: str) -> Path:
    """The cured folder of a family. Raises Missing where it can't be had on this machine."""
    source = tokenizer_folder(family)

    def fill(target: Path) -> None:
        edited(source, target, CURED[family])

    return lay(f"bugs/tokenizers-{edition()}/{family}", fill)


def edited(source: Path, target: Path, edits: Edits) -> Path:
    """A copy of a folder with keys of its JSON files changed; None takes a key out."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_link)
    for name, changes in edits.items():
        path = target / name
        values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept = {key: value for key, value in (values | changes).items() if value is not None}
        path.unlink(missing_ok=True)
        path.write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")
    return target


def templated(source: Path, target: Path, template: str | None) -> Path:
    """A copy of a folder with another chat template, or with none."""
    edited(source, target, {"tokenizer_config.json": {"chat_template": template}})
    file = target / "chat_template.jinja"
    file.unlink(missing_ok=True)
    if template is not None:
        file.write_text(template, encoding="utf-8")
    return target


def chatml(
    *,
    before: str = "",
    content: str = "message['content']",
    answer: str = "{{ content + '<|im_end|>\\n' }}",
    prompt: str = "<|im_start|>assistant\\n",
) -> str:
    """A ChatML template.

    before: what stands before the first message; content: the expression of a message's text; answer: what follows
    the assistant's header; prompt: the generation prompt.
    """
    return (
        f"{before}{{% for message in messages %}}{{% set content = {content} %}}"
        "{{ '<|im_start|>' + message['role'] + '\\n' }}"
        f"{{% if message['role'] == 'assistant' %}}{answer}"
        "{% else %}{{ content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
        f"{{% if add_generation_prompt %}}{{{{ '{prompt}' }}}}{{% endif %}}"
    )


def loaded(folder: Path) -> Any:
    """The folder as transformers loads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

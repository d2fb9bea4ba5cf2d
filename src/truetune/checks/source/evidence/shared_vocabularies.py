"""States which published models share one vocabulary, by their names.

Each group is a set of models whose tokenizers give the same ids to the same ordinary text, so that
taking another one of the group is no fault (an adapter's base, a chat model and its base, models
that were made with somebody else's tokenizer: Pythia, MPT and Mamba with GPT-NeoX's). A name that
fits no group, or fine-tunes of which the name does not begin with its base's, are not known:
nothing is said of them.
"""

from __future__ import annotations

import re

GROUPS = (
    (
        "GPT-2",
        r"(openai-)?gpt2|distilgpt2|gpt-neo-|gpt-j-|dialogpt|cerebras-gpt|phi-1|phi-2|codegen-",
    ),
    (
        "GPT-NeoX",
        r"pythia|gpt-neox|mpt-|mamba-|redpajama-incite|dolly-v2|olmo-1b|olmo-7b|rwkv-4|stablelm-(base|tuned)",
    ),
    ("OPT", r"opt-\d"),
    (
        "Llama 2",
        r"(meta-)?llama-?2|llama-(7|13|30|65)b|tinyllama|vicuna|codellama|alpaca-(7|13)b|phi-3|open-?orca-llama",
    ),
    ("Llama 3", r"(meta-)?llama-?3"),
    ("Mistral", r"mistral-7b|mixtral-8x7b|zephyr-7b"),
    ("Qwen", r"qwen1-5|qwen2(-5)?-|qwen3-|qwq-|qwen2-5"),
    ("Gemma", r"gemma-(2b|7b)|gemma-2-"),
    ("Gemma 3", r"gemma-3-"),
    ("Falcon", r"falcon-(rw-|7b|40b|180b)"),
    ("BLOOM", r"bloom(z)?-"),
    ("T5", r"(flan-)?t5-(small|base|large|xl|xxl|3b|11b)|t5-v1-1"),
    ("mT5", r"mt5-"),
    ("uncased BERT", r"(distil)?bert-(base|large)-uncased"),
    ("cased BERT", r"(distil)?bert-(base|large)-cased"),
    ("RoBERTa", r"(distil)?roberta-(base|large)|bart-(base|large)"),
    ("XLM-R", r"xlm-roberta|xlm-r"),
    ("SmolLM", r"smollm"),
    ("gpt-oss", r"gpt-oss"),
)
"""A vocabulary, and the beginning of the names of models that have it, in lower case, `-` for every other sign"""

ON_THE_HUB = r"[A-Za-z0-9][\w-]*/[\w.-]+|[a-z0-9][\w-]*"
"""`owner/name`, or the name of one of the first models (`gpt2`): no path of this machine"""


def vocabulary_group(name: str) -> str | None:
    """The vocabulary of a published model by its name on the hub; None where it is not known."""
    if not re.fullmatch(ON_THE_HUB, name):
        return None
    last = re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].lower())
    known_group = next((group for group, pattern in GROUPS if re.match(pattern, last)), None)
    # Distilled and merged models may come with a tokenizer of their makers' own.
    return None if re.search(r"distill|merge|-x-|moe-", last) else known_group

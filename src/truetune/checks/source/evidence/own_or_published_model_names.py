"""Says whether a model's name may be one that a project gave to a model of its own, or is surely
that of a published model.

A folder of the disk, or the name under which a server of one's own answers, may be. Names of the
hub with an owner are somebody's, and so are names that consist of nothing but a published family, a
size, a version and a kind (`mistral-large-latest`, `gemma2:9b`): a tuned model has a word of its
own (`mistral-tickets`). The trade-off: a tuned model that is served under the name of its base is
taken for the base.
"""

from __future__ import annotations

import re

from truetune.checks.source.evidence.tokenizer_facts_of_published_models import family_of_model

FAMILY_WORDS = frozenset(
    (
        *(
            "abab",
            "albert",
            "aya",
            "baichuan",
            "bart",
            "bert",
            "bison",
            "bloom",
            "bloomz",
            "chatglm",
        ),
        *("codegemma", "codellama", "codestral", "dbrx", "deepseek", "devstral", "distilbert"),
        *(
            "distilgpt",
            "distilgpt2",
            "dolphin",
            "doubao",
            "ernie",
            "exaone",
            "falcon",
            "flan",
            "gemma",
        ),
        *(
            "glm",
            "gpt",
            "gpt2",
            "granite",
            "hermes",
            "hunyuan",
            "internlm",
            "jamba",
            "kimi",
            "llama",
        ),
        *(
            "llava",
            "luminous",
            "magistral",
            "minicpm",
            "minimax",
            "ministral",
            "mistral",
            "mixtral",
            "moonshot",
        ),
        *(
            "mpt",
            "nemo",
            "nemotron",
            "neo",
            "nova",
            "nous",
            "olmo",
            "openchat",
            "openhermes",
            "opt",
            "orca",
        ),
        *(
            "palm",
            "phi",
            "pixtral",
            "pythia",
            "qwen",
            "qwq",
            "roberta",
            "smollm",
            "solar",
            "starcoder",
        ),
        *("starling", "t5", "tinyllama", "vicuna", "wizardlm", "xlnet", "yi", "zephyr"),
    )
)
KIND_WORDS = frozenset(
    (
        *(
            "air",
            "base",
            "beta",
            "cased",
            "chat",
            "code",
            "coder",
            "distill",
            "dpo",
            "exp",
            "fast",
            "flash",
            "fp",
            "free",
        ),
        *(
            "gguf",
            "hf",
            "highspeed",
            "instruct",
            "it",
            "large",
            "latest",
            "lite",
            "long",
            "math",
            "max",
            "medium",
        ),
        *(
            "micro",
            "mini",
            "nano",
            "next",
            "omni",
            "open",
            "plus",
            "preview",
            "pro",
            "reasoner",
            "reasoning",
        ),
        *(
            "small",
            "speciale",
            "text",
            "think",
            "thinking",
            "tiny",
            "turbo",
            "ultra",
            "uncased",
            "unicode",
        ),
        *("versatile", "vision", "vl", "xl", "xxl", "awq", "gptq", "int", "bf"),
    )
)
"""Words that makers put beside the name of a family"""
SIZE_OR_VERSION = re.compile(r"[a-z]{0,2}\d+(?:x\d+)?[a-z]{0,2}|[a-z]")
"""A size, a version, a date or a quantization: `7b`, `8x7b`, `v1`, `q4`, `k`, `m`"""
HOSTED_MODEL = re.compile(
    r"ft:|(?:chat)?gpt-?\d|o[1-9](?:-|$)|claude|gemini|grok|davinci|babbage|text-(?:davinci|embedding)|command-|sonar"
    r"|(?:\w{2}\.)?(?:amazon|anthropic|meta|mistral|cohere|ai21)\.|accounts/\w+/models/|(?:models/)?gemini"
    r"|(?:openrouter|azure|bedrock|vertex_ai|together_ai|groq|gemini)/",
    re.I,
)
"""Names of models that only their makers serve, or a gateway to them"""
OTHER_ROLE = re.compile(
    r"(?:^|[^a-z])(?:judge|grader|critic|teacher|verifier|guard|rerank(?:er)?|reward|embed(?:der|ding|dings)?"
    r"|baseline|reference|draft|bge|e5|gte|minilm|whisper|tts|asr)(?![a-z])",
    re.I,
)
"""Words of models that stand beside the one that is trained"""


def may_be_own_model(name: str) -> bool:
    """May a project have made the model of this name itself?"""
    is_local = name.startswith((".", "/", "~")) or name.count("/") != 1
    if not is_local or family_of_model(name) is not None:
        return False
    return not is_surely_published_or_helper_model(name)


def is_surely_published_or_helper_model(name: str) -> bool:
    """Is it a published or hosted model as it came, or one that helps: a judge, a teacher, an
    embedder?
    """
    is_of_makers = HOSTED_MODEL.match(name) or _is_family_and_maker_words(name)
    return bool(is_of_makers) or OTHER_ROLE.search(name) is not None


def _is_family_and_maker_words(name: str) -> bool:
    """Does a name consist of a family of published models and of words that makers put beside it?"""
    words = [word for word in re.split(r"[^a-z0-9]+", name.rpartition("/")[2].lower()) if word]
    is_of_family = [_is_model_family_name(word) for word in words]
    return any(is_of_family) and all(
        is_family or word in KIND_WORDS or SIZE_OR_VERSION.fullmatch(word) is not None
        for word, is_family in zip(words, is_of_family, strict=True)
    )


def _is_model_family_name(word: str) -> bool:
    """Is it the name of a family, with its version or without: `llama`, `qwen2`, `phi3`?"""
    return word in FAMILY_WORDS or word.rstrip("0123456789") in FAMILY_WORDS

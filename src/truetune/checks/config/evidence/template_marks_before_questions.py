"""What the named chat templates of other stacks write before a question, and what the tokenizer's own writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from truetune.cached_for_one_call import cached_for_one_call
from truetune.checks.config.evidence.published_chat_models import (
    CHATML,
    COHERE,
    DEEPSEEK,
    EXAONE,
    GEMMA,
    GPT_OSS,
    GRANITE,
    KIMI,
    MISTRAL,
    PHI,
    PHI4,
    ChatModelFamily,
    family_of_published_chat_model,
)
from truetune.errors import TruetuneError
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.render.template_probes import (
    ANSWER,
    QUESTION,
    Probes,
    alternating_chat,
    load_tokenizer_and_template_of_run,
)
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_axolotl_datasets import preference_strategy_with_own_template

GEMMA4 = "<|turn>user"
LLAMA3, LLAMA4 = "<|start_header_id|>user", "<|header_start|>user"
GLM = PHI
MARKERS: Mapping[str, str] = {
    "chatml": CHATML,
    "chatml_de": CHATML,
    "qwen": CHATML,
    "qwen3": CHATML,
    "qwen3_nothink": CHATML,
    "qwen3_5": CHATML,
    "qwen3_5_nothink": CHATML,
    "qwen_25": CHATML,
    "smollm": CHATML,
    "smollm2": CHATML,
    "yi": CHATML,
    "intern2": CHATML,
    "falcon_h1": CHATML,
    "lfm2": CHATML,
    "llama3": LLAMA3,
    "llama4": LLAMA4,
    "llama2": MISTRAL,
    "mistral": MISTRAL,
    "mistral_small": MISTRAL,
    "ministral": MISTRAL,
    "mistral_v1": MISTRAL,
    "mistral_v2v3": MISTRAL,
    "mistral_v3_tekken": MISTRAL,
    "mistral_v7_tekken": MISTRAL,
    "gemma": GEMMA,
    "gemma2": GEMMA,
    "gemma3": GEMMA,
    "gemma3n": GEMMA,
    "gemma4": GEMMA4,
    "gemma4n": GEMMA4,
    "gemma4_unified": GEMMA4,
    "phi": PHI,
    "phi_3": PHI,
    "phi_35": PHI,
    "phi4": PHI4,
    "phi4_mini": PHI,
    "zephyr": PHI,
    "deepseek3": DEEPSEEK,
    "deepseekr1": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "cohere": COHERE,
    "command_a": COHERE,
    "chatglm3": GLM,
    "chatglm4": GLM,
    "glm4": GLM,
    "glm4_0414": GLM,
    "glm4_5": GLM,
    "qwen2": CHATML,
    "qwen2_5": CHATML,
    "internlm2": CHATML,
    "llama": MISTRAL,
    "llama3_1": LLAMA3,
    "llama3_2": LLAMA3,
    "mistral_nemo": MISTRAL,
    "gemma3_text": GEMMA,
    "gemma3_vision": GEMMA,
    "phi3": PHI,
    "phi3_5": PHI,
    "deepseek_r1": DEEPSEEK,
    "deepseek_v2_5": DEEPSEEK,
    "deepseek_v3_1": DEEPSEEK,
    "c4ai": COHERE,
    "aya": COHERE,
    "glmz1": GLM,
    "glm4_moe": GLM,
    "granite3": GRANITE,
    "granite4": GRANITE,
    "gpt_oss": GPT_OSS,
    "exaone": EXAONE,
    "exaone4": EXAONE,
    "moonlight": KIMI,
    "kimi_k2": KIMI,
    "mllama": LLAMA3,
    "devstral": MISTRAL,
    "mistral_2501": MISTRAL,
    "pixtral": MISTRAL,
    "qwq": CHATML,
    "qwen2_vl": CHATML,
    "qwen2_5_vl": CHATML,
    "qwen3_vl": CHATML,
    "qwen3_coder": CHATML,
    "qwen3_thinking": CHATML,
    "qwen3_nothinking": CHATML,
    "yi_coder": CHATML,
    "mimo": CHATML,
    "cpm4": CHATML,
    "opencoder": CHATML,
    "alpaca": "### Instruction:",
    "vicuna": "USER:",
    "default": "Human:",
}
"""Name in Axolotl, LLaMA-Factory or ms-swift -> the marker of a question"""
MARKS_OF_MODELS = (
    ("(qwen|qwq|smollm)", CHATML),
    ("(meta-)?llama-?4", LLAMA4),
    ("(meta-)?llama-?3", LLAMA3),
    ("llama-?2-.*chat", MISTRAL),
    ("gemma-?4", GEMMA4),
    ("gemma-", GEMMA),
    ("(mistral|mixtral|ministral)-", MISTRAL),
    ("phi-?(3|4-mini)", PHI),
)
"""Beginning of a published model's normalized name -> the marker of a question in its template"""
# What stands between family and `instruct` is listed, for `Llama-3.1-Tulu-3-8B-SFT` and its like have own templates.
CHAT_MODEL = re.compile(
    r"(?:meta-)?(?:qwen|llama|gemma|mistral|mixtral|ministral|phi|smollm)"
    r"(?:-?(?:\d[0-9a-z]*|coder|math|vl|vision|mini|small|nemo|next|moe|a\d+b))*-(?:instruct|it|chat)(?:-|$)"
    r"|qwen3(?:-\d+)*-?\d+b(?:-a\d+b)?$|qwq-"
)
"""Name of a published chat model, as `mark_before_question_of_model` writes it; a base is trained by any template"""
CONTROL_TOKEN = re.compile(r"<[|｜]?[^<>\s]+[|｜]?>")
MIN_NAME_CHARS = 5
"""Letters of a template's name that may stand inside of a file's: `yi` and `phi` stand in many words"""
SAVED_TEMPLATES = frozenset(("chatml", "chatml_de", "alpaca", "default"))
"""LLaMA-Factory's templates that replace the tokenizer's own when it saves"""


STRATEGIES: Mapping[str, str] = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "zephyr": PHI,
    "mistral": MISTRAL,
}
"""First part of the name of a strategy of Axolotl for preferences -> the marker of a question that it writes itself"""


ALPACA_STYLES: Mapping[str, str] = {
    "alpaca": "### Instruction:",
    "alpaca:chat": "USER:",
    "alpaca:phi": PHI,
    "alpaca:chatml": CHATML,
}
"""Type of Axolotl's data sets that writes Alpaca's prompt in one of its styles -> the marker of a question"""


class OwnTemplate(NamedTuple):
    """The template that a type of Axolotl's data sets writes by itself, whatever the tokenizer's is: a strategy for
    preferences, or Alpaca's prompt."""

    name: str
    """`chatml.intel`"""
    marker: str
    """The marker of a question"""


def own_template_of_strategy(config: Config) -> OwnTemplate | None:
    """The template of an Axolotl run's first strategy for preferences; None where it is the tokenizer's, or unknown.

    None as well where `chat_template` names the same family: the tokenizer is saved with it.
    """
    if config.stack != "axolotl":
        return None
    items = config.raw.get("datasets")
    if not config.raw.get("rl"):
        return _own_template_of_alpaca_rows(config, items if isinstance(items, list) else [])
    for item in items if isinstance(items, list) else []:
        kind = item.get("type") if isinstance(item, dict) else None
        name = preference_strategy_with_own_template(config.raw.get("rl"), kind)
        marker = _question_marker_of_strategy(name, kind, item) if name else None
        if marker is not None:
            own = MARKERS.get(str(config.raw.get("chat_template")))
            return None if own == marker else OwnTemplate(name, marker)
    return None


def _own_template_of_alpaca_rows(config: Config, items: list[object]) -> OwnTemplate | None:
    """Alpaca's prompt of an SFT whose data sets are all of this type, beside a chat template that is named for it."""
    template = MARKERS.get(str(config.raw.get("chat_template")))
    kinds = {str(item.get("type")) if isinstance(item, Mapping) else "" for item in items}
    if template is None or len(kinds) != 1:
        return None
    (kind,) = kinds
    marker = ALPACA_STYLES.get(kind)
    if marker is None or first_mark_without_role(marker) == first_mark_without_role(template):
        return None
    return OwnTemplate(kind, marker)


def _question_marker_of_strategy(name: str, kind: object, item: Mapping[str, object]) -> str | None:
    """The marker of a question of one strategy; of a format of one's own the mark that stands in it."""
    family = name.partition(".")[0]
    if family in STRATEGIES:
        return STRATEGIES[family]
    given = kind if isinstance(kind, dict) else item
    written = given.get("prompt_format")
    return _longest_mark_in_template(written) if isinstance(written, str) else None


def first_mark_without_role(marker: str) -> str:
    """A marker without the role behind it, which templates write as a variable: `<|im_start|>`, `[INST]`."""
    control = CONTROL_TOKEN.match(marker)
    return control[0] if control is not None else marker


def mark_before_question_in_template(template: str) -> str | None:
    """The first mark before a question of a template, given by its text or its name; None where it is unknown."""
    if "{" in template:
        return _longest_mark_in_template(template)
    name = _without_separators(template)
    # `qwen-2.5` of Unsloth, `qwen2_5` of ms-swift and `qwen_25` of Axolotl are one name.
    names = {_without_separators(key): marker for key, marker in MARKERS.items()}
    if name in names:
        return first_mark_without_role(names[name])
    parts = [
        key for key in names if len(key) >= MIN_NAME_CHARS and key != "default" and key in name
    ]
    # `llama3_tool` names `llama3` more closely than `llama`: the longest name decides.
    key = max(parts, key=len, default=None)
    return first_mark_without_role(names[key]) if key is not None else None


def _without_separators(name: str) -> str:
    """A template's name in small letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _longest_mark_in_template(template: str) -> str | None:
    """The longest mark that stands in a template's text; None where none does."""
    marks = {first_mark_without_role(marker) for marker in MARKERS.values()}
    # Vicuna's mark is a plain word, which any system prompt may hold.
    inside = [mark for mark in marks if mark in template and mark != MARKERS["vicuna"]]
    return max(inside, key=len) if inside else None


def mark_before_question_of_model(name: str) -> str | None:
    """The first mark before a question in the published template of a model, by its name; None where it is unknown."""
    plain = _normalized_model_name(name)
    family = family_of_published_chat_model(plain)
    marker = (
        family.marker
        if family is not None
        else next((marker for start, marker in MARKS_OF_MODELS if re.match(start, plain)), None)
    )
    return first_mark_without_role(marker) if marker is not None else None


def mark_before_question_of_chat_model(name: str) -> str | None:
    """The first mark before a question in the published template of a chat model, by its name; None
    for a base, which is trained by any template.
    """
    is_chat_model = (
        chat_model_family(name) is not None
        or CHAT_MODEL.match(_normalized_model_name(name)) is not None
    )
    return mark_before_question_of_model(name) if is_chat_model else None


def chat_model_family(name: str) -> ChatModelFamily | None:
    """The family of a published chat model whose name does not begin with the family's; None for any other."""
    return family_of_published_chat_model(_normalized_model_name(name))


def _normalized_model_name(name: str) -> str:
    """The last part of a model's name, its words separated by dashes: `qwen2-5-7b-instruct`."""
    return re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].lower())


def text_before_question_in_own_template(config: Config) -> str | None:
    """The text that the tokenizer's own template writes before a question; None where no tokenizer
    is here.
    """
    probes = _probes_of_own_tokenizer(config)
    text = probes.text(alternating_chat(QUESTION, ANSWER)) if probes else None
    return text[: text.index(QUESTION)] if text is not None and QUESTION in text else None


def answer_end_and_eos(config: Config) -> tuple[str | None, str | None]:
    """The control token that ends an answer by the tokenizer's template, and the tokenizer's EOS."""
    probes = _probes_of_own_tokenizer(config)
    if (
        probes is None
        or probes.template is None
        or probes.terminator is None
        or probes.terminator.token is None
    ):
        return None, None
    eos = probes.tokenizer.special.get("eos")
    return probes.terminator.text, eos.token if eos else None


def tokenizer_has_token(config: Config, text: str) -> bool | None:
    """Is this one token of the tokenizer? None where it is not available."""
    probes = _probes_of_own_tokenizer(config)
    return None if probes is None else probes.tokenizer.backend.token_to_id(text) is not None


def _probes_of_own_tokenizer(config: Config) -> Probes | None:
    """The probes of the settings' tokenizer; None where it is not on this machine."""
    name = config.spec.tokenizer
    try:
        here = name is not None and (find_tokenizer_folder(name) / "tokenizer.json").is_file()
    except (TruetuneError, OSError, ValueError):
        return None
    return _loaded_probes(str(name)) if here else None


@cached_for_one_call
def _loaded_probes(name: str) -> Probes | None:
    """The probes of a tokenizer by its name, made once; None where it cannot be read."""
    try:
        return load_tokenizer_and_template_of_run(RunSpec(tokenizer=name))
    except TruetuneError:
        return None

"""Published chat models whose names don't begin with a family's: what their templates write before a question.

From the tables in which LLaMA-Factory (extras/constants.py, data/template.py) and ms-swift (model/models, template)
give each model of the hub its template, and from the model cards of Hermes. The trade-off: names that several templates
may belong to, bases, and models of whose releases some have other templates are left out: a wrong family is an alarm.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CHATML = "<|im_start|>user"
PHI, DEEPSEEK, MISTRAL = "<|user|>", "<｜User｜>", "[INST]"
GEMMA = "<start_of_turn>user"
COHERE = "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>"
PHI4 = "<|im_start|>user<|im_sep|>"
GRANITE = "<|start_of_role|>user"
GPT_OSS = "<|start|>user"
KIMI = "<|im_user|>user"
EXAONE = "[|user|]"


class ChatModelFamily(NamedTuple):
    """Published chat models with one template."""

    names: str
    """Pattern of the beginning of a normalized name: small letters, digits and dashes"""
    marker: str
    """The marker of a question"""
    llama_factory: str
    """The template's name in LLaMA-Factory; empty where none is its own"""


CHAT_MODELS = (
    # The distilled models keep the tokens of Qwen or Llama, and have DeepSeek's template.
    ChatModelFamily(
        r"deepseek-r1(-distill-(qwen|llama)-|-0528(-|$)|(-awq|-bf16)?$)", DEEPSEEK, "deepseekr1"
    ),
    ChatModelFamily(r"deepseek-(v2-5|v3)(?!.*base)", DEEPSEEK, "deepseek3"),
    ChatModelFamily(
        r"deepseek-(llm-\d+b-chat|math-7b-(instruct|rl)|moe-16b-chat)", "User:", "deepseek"
    ),
    ChatModelFamily(
        r"deepseek-coder-(1-3|6-7|7|33)b-instruct", "### Instruction:", "deepseekcoder"
    ),
    ChatModelFamily(r"chatglm3-6b(?!-base)", PHI, "chatglm3"),
    ChatModelFamily(r"glm-4-(9b-chat|(9b|32b)-0414)", PHI, "glm4"),
    ChatModelFamily(r"glm-z1-(9b|32b)", PHI, "glmz1"),
    ChatModelFamily(r"internlm(2|2-5)-.*chat", CHATML, "intern2"),
    ChatModelFamily(r"yi-(1-5-)?\d+b-chat", CHATML, "yi"),
    ChatModelFamily(r"phi-4(-reasoning(-plus)?)?(-unsloth.*|-bnb.*)?$", PHI4, "phi4"),
    ChatModelFamily(r"(c4ai-command-|c4ai-aya-|aya-23-|aya-expanse-)", COHERE, "cohere"),
    ChatModelFamily(r"zephyr-7b-(alpha|beta)", PHI, "zephyr"),
    ChatModelFamily(r"granite-3-\d-\d+b.*-instruct", GRANITE, "granite3"),
    ChatModelFamily(r"gpt-oss-\d+b", GPT_OSS, "gpt_oss"),
    ChatModelFamily(r"exaone-3-.*instruct", EXAONE, "exaone"),
    ChatModelFamily(r"vicuna-\d+b", "USER:", "vicuna"),
    ChatModelFamily(r"(openhermes-2|nous-hermes-2|hermes-[23])-", CHATML, "chatml"),
    ChatModelFamily(r"falcon-h1-.*instruct", CHATML, "falcon_h1"),
    ChatModelFamily(r"(codestral-22b|devstral-small|mistral-large-instruct)", MISTRAL, ""),
    ChatModelFamily(r"(medgemma|codegemma)-.*-it(-|$)", GEMMA, ""),
    ChatModelFamily(r"(moonlight-.*|kimi-k2-)instruct", KIMI, "moonlight"),
)


def family_of_published_chat_model(plain: str) -> ChatModelFamily | None:
    """The family of a published chat model by its normalized name; None where the name tells none."""
    return next((family for family in CHAT_MODELS if re.match(family.names, plain)), None)

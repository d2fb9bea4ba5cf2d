"""LoRA targets that are layers of another family of published models, whose weights are not on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks.config import found
from tests.checks.config.settings import AXOLOTL, LORA
from truetune.checks.config.evidence.target_module_names_of_published_families import (
    layer_names_of_family,
)
from truetune.source.parsed_source_file import parse_module
from truetune.source.settings_of_script_as_configs import only_config_of_script

LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TRL = "import argparse\nfrom trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer\n"


@pytest.mark.parametrize(
    ("model", "targets", "severity"),
    [
        ("meta-llama/Llama-3.1-8B", ["query_key_value"], "error"),
        ("google/gemma-2-9b-it", ["c_attn", "c_proj"], "error"),
        ("tiiuae/falcon-7b", ["q_proj", "v_proj"], "error"),
        ("unsloth/Qwen3-8B-bnb-4bit", ["q_proj", "v_proj", "fc1"], "warning"),
        # A list for several families that holds every layer of this one loses nothing.
        ("Qwen/Qwen3-8B", [*LLAMA, "query_key_value", "c_attn"], None),
        ("Qwen/Qwen3-8B", ["self_attn.q_proj", "down_proj"], None),
        ("Qwen/Qwen3-8B", ["my_proj"], None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", ["qkv", "fc1"], None),
        ("Qwen/Qwen3-30B-A3B", ["gate", "w1"], None),
        ("meta-llama/Llama-3.2-11B-Vision", ["fc1", "fc2"], None),
        ("google/gemma-3-4b-it", ["fc1"], None),
        ("me/my-model", ["c_attn"], None),
    ],
)
def test_layers_of_another_family(
    model: str, targets: list[str], severity: str | None, tmp_path: Path
) -> None:
    """Only a layer of another family is named, and only where a layer of this one is left without an adapter."""
    settings = {**AXOLOTL, **LORA, "lora_target_linear": None, "base_model": model}
    findings = found(tmp_path, {**settings, "lora_target_modules": targets})
    named = findings.get("lora-target-fits-nothing", [])
    assert [finding.severity for finding in named] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("openai-community/gpt2-xl", "c_attn"),
        ("microsoft/Phi-3.5-mini-instruct", "qkv_proj"),
        ("microsoft/phi-4", "qkv_proj"),
        ("FacebookAI/xlm-roberta-large", "query"),
        ("google/flan-t5-base", "q"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "q_proj"),
    ],
)
def test_names_of_families(name: str, one: str) -> None:
    """Published names lead to the layers of their family."""
    assert one in (layer_names_of_family(name) or ())


@pytest.mark.parametrize(
    ("program", "model"),
    [
        ("BASE = 'a/b'\nSFTTrainer(model=BASE, args=SFTConfig(output_dir='o'))", "a/b"),
        ("c = DPOConfig(output_dir='o')\nDPOTrainer('a/b', None, c)", None),
        ("c = DPOConfig(output_dir='o')\nDPOTrainer('a/b', ref_model=None, args=c)", "a/b"),
        ("c = SFTConfig(output_dir='o')\nSFTTrainer(load(), c)", None),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--base', default='a/b')\nargs = p.parse_args()\n"
            "SFTTrainer(args.base, args=SFTConfig(output_dir='o'))",
            "a/b",
        ),
        ("c = SFTConfig(output_dir='o')\nSFTTrainer('a/b', c)\nSFTTrainer('a/c', c)", None),
    ],
)
def test_a_trainer_that_loads_the_model_itself(
    program: str, model: str | None, tmp_path: Path
) -> None:
    """The name that a trainer is given is the model of its arguments."""
    config = only_config_of_script(parse_module(TRL + program, str(tmp_path / "train.py")))
    assert config is not None
    assert config.spec.model == model


TINY = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 32,
    "pad_token_id": 0,
}
TINY_OF_ANOTHER_FORM: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32},
    "gptj": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32, "rotary_dim": 4},
    "opt": {**TINY, "ffn_dim": 16, "word_embed_proj_dim": 8},
    "distilbert": {"dim": 16, "hidden_dim": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 32},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 32},
    "bart": {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "vocab_size": 32,
    },
    "falcon": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 32,
    },
    "bloom": {"hidden_size": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32},
}


@pytest.mark.parametrize(
    ("kind", "published"),
    [
        ("llama", "meta-llama/Llama-3.1-8B-Instruct"),
        ("mistral", "mistralai/Mistral-7B-Instruct-v0.3"),
        ("qwen2", "Qwen/Qwen2.5-7B-Instruct"),
        ("qwen3", "Qwen/Qwen3-4B"),
        ("gemma2", "google/gemma-2-9b-it"),
        ("gemma3_text", "google/gemma-3-1b-it"),
        ("phi3", "microsoft/Phi-3-mini-4k-instruct"),
        ("phi", "microsoft/phi-2"),
        ("gpt2", "gpt2"),
        ("gptj", "EleutherAI/gpt-j-6b"),
        ("gpt_neox", "EleutherAI/pythia-1b"),
        ("falcon", "tiiuae/falcon-7b"),
        ("bloom", "bigscience/bloomz-7b1"),
        ("opt", "facebook/opt-350m"),
        ("bert", "bert-base-uncased"),
        ("roberta", "roberta-large"),
        ("distilbert", "distilbert-base-uncased"),
        ("t5", "google-t5/t5-base"),
        ("bart", "facebook/bart-large"),
        ("starcoder2", "bigcode/starcoder2-7b"),
    ],
)
def test_the_table_holds_every_layer_of_the_class(kind: str, published: str) -> None:
    """A layer that the table lacks would be called another family's: a false alarm."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = transformers.AutoConfig.for_model(kind, **TINY_OF_ANOTHER_FORM.get(kind, TINY))
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    adapted = {
        name.rpartition(".")[2]
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D"
    }
    known = layer_names_of_family(published)
    assert known is not None
    assert adapted - {"pooler"} <= known

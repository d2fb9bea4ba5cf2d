"""Which scripts make one unit of FSDP of the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

FIRST = """
import functools
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
model = AutoModelForCausalLM.from_pretrained("{name}")
"""
SECOND = """
import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("{name}")
"""
LARGE, SMALL = "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-0.5B"
POLICY = (
    "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})"
)


def messages(folder: Path, text: str) -> list[str]:
    """What the rule says of a script."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return [one.message for one in lint([path], select=["fsdp-wraps-the-model-whole"]).findings]


def first(code: str, name: str = LARGE) -> str:
    """A script of the first version."""
    return FIRST.replace("{name}", name) + code


def second(code: str, name: str = LARGE) -> str:
    """A script of the second version."""
    return SECOND.replace("{name}", name) + code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (first("model = FSDP(model)\n"), "one unit"),
        (
            first("model = FSDP(model.cuda(), device_id=rank, mixed_precision=MixedPrecision())\n"),
            "one unit",
        ),
        (
            first(
                "model = FSDP(model, auto_wrap_policy=None, sharding_strategy=ShardingStrategy.FULL_SHARD)\n"
            ),
            "one unit",
        ),
        (second("fully_shard(model)\n"), "one unit"),
        (
            first(
                f"model = FSDP(model, auto_wrap_policy={POLICY}, sharding_strategy=ShardingStrategy.NO_SHARD)\n"
            ),
            "shards nothing",
        ),
        (
            first("def main(rank):\n    wrapped = FSDP(model)\n    return wrapped\nmain(0)\n"),
            "one unit",
        ),
    ],
)
def test_a_model_as_one_unit(tmp_path: Path, text: str, said: str) -> None:
    (message,) = messages(tmp_path, text)
    assert said in message


@pytest.mark.parametrize(
    "text",
    [
        first(f"model = FSDP(model, auto_wrap_policy={POLICY})\n"),
        first(f"model = FSDP(model, None, ShardingStrategy.FULL_SHARD, None, {POLICY})\n"),
        first(
            "for i, layer in enumerate(model.model.layers):\n"
            "    model.model.layers[i] = FSDP(layer)\nmodel = FSDP(model)\n"
        ),
        first("model = FSDP(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"),
        first("model = FSDP(model)\n", SMALL),
        first("model = FSDP(model, **options)\n"),
        second("for layer in model.model.layers:\n    fully_shard(layer)\nfully_shard(model)\n"),
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "model = FSDP(torch.nn.Linear(8, 8))\n",
    ],
)
def test_layers_that_are_wrapped(tmp_path: Path, text: str) -> None:
    assert messages(tmp_path, text) == []

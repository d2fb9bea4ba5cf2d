"""Size: how large everything is that the GPU bench measures; `card` for one large GPU, `tiny` for a test on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.memory import Case

ALL_LINEAR = {"r": 16, "target_modules": "all-linear"}
MIXED = {"dtype": "float32", "bf16": True}
"""Full fine-tuning: weights in float32, matrices in bfloat16"""
NARROW = {"dtype": "bfloat16", "bf16": True}
"""A frozen base in bfloat16"""
CHECKPOINTED = {"gradient_checkpointing": True}
LORA = {"lora": ALL_LINEAR}
QLORA = {"lora": ALL_LINEAR, "load_in": 4}
FullOrLora = Literal["full", "lora"]
Family = Literal["llama", "qwen3"]


@dataclass(frozen=True)
class Race:
    """One comparison of throughput: the same model and rows in truetune's trainer and TRL's."""

    shape: str
    """Of bench.memory.SHAPES"""
    trains: FullOrLora
    max_length: int
    """Tokens of a packed row at most"""
    rows_per_step: int
    """Packed rows"""
    steps: int
    """Timed ones"""
    rounds: int
    """Times that each contender runs, in turn and back: A B B A"""
    answer_words: int
    """Of the examples, on average: what a packed row is made of"""
    expected_s: float
    """Seconds that one contender takes, with the model's making"""
    checkpointing: bool = False


@dataclass(frozen=True)
class RewardRace:
    """One comparison of trainings by rewards: the same model, prompts and settings in `truetune train` and in TRL."""

    shape: str
    """Of bench.memory.SHAPES; its vocabulary is the tokenizer's"""
    trains: FullOrLora
    group: int
    """Answers to a prompt"""
    batch: int
    """Answers in one forward pass: whole groups"""
    accumulation: int
    """Forward passes in a step"""
    max_completion_length: int
    """Tokens of an answer. Random weights hardly ever write a stop token: most answers are as long."""
    steps: int
    """Timed ones. Each rollout is learned from twice, so that two steps are one generation."""
    expected_s: float
    """Seconds that one contender takes where transformers samples"""
    expected_with_vllm_s: float
    """The same where vLLM does, with the start of its engine"""


@dataclass(frozen=True)
class Size:
    """All sizes of one run of the bench."""

    name: str
    families: tuple[Family, ...]
    """Of the small models of `correctness`"""
    hidden: int
    """Their width"""
    layers: int
    chats: int
    """Rows of `correctness`"""
    max_length: int
    """Tokens of its packed rows"""
    laws: tuple[str, ...]
    """`quick`, or names: laws of a correct training that are measured"""
    law_configurations: tuple[str, ...]
    """Of bench.gpu.laws"""
    memory: tuple[Case, ...]
    races: tuple[Race, ...]
    reward_races: tuple[RewardRace, ...]


CARD = Size(
    "card",
    families=("llama", "qwen3"),
    hidden=512,
    layers=4,
    chats=64,
    max_length=1024,
    laws=("quick",),
    law_configurations=(
        "full, float32",
        "LoRA, bf16, checkpointing",
        "control: packed without borders",
        "full, bf16, padded",
    ),
    # By how much each says about the plan: if the time ends early, the last ones are not run.
    memory=(
        Case("llama-3.2-1b", 1, 4096, MIXED | CHECKPOINTED),
        Case("llama-3.2-1b", 1, 4096, MIXED),
        Case("llama-3.1-8b", 1, 4096, NARROW | CHECKPOINTED | LORA),
        Case("llama-3.2-1b", 4, 1024, MIXED),
        Case("llama-3.2-1b", 4, 4096, MIXED | CHECKPOINTED, trl=True),
        Case("llama-3.2-1b", 4, 4096, NARROW | CHECKPOINTED | LORA),
        Case("llama-3.2-1b", 4, 1024, NARROW | LORA),
        Case("llama-3.2-1b", 1, 1024, NARROW | LORA),
        Case("llama-3.2-1b", 4, 4096, MIXED | CHECKPOINTED),
        Case("qwen3-0.6b", 2, 4096, NARROW | LORA),
        Case("llama-3.1-8b", 2, 2048, NARROW | LORA),
        Case("llama-3.2-1b", 1, 1024, MIXED),
        Case("llama-3.2-1b", 1, 1024, NARROW | QLORA),
        Case("llama-3.1-8b", 1, 4096, NARROW | CHECKPOINTED | QLORA),
    ),
    races=(
        Race("llama-3.2-1b", "full", 2048, 4, steps=10, rounds=2, answer_words=150, expected_s=14),
        Race(
            "llama-3.1-8b",
            "lora",
            2048,
            4,
            steps=6,
            rounds=1,
            answer_words=150,
            expected_s=30,
            checkpointing=True,
        ),
        Race("llama-3.2-1b", "lora", 2048, 4, steps=10, rounds=1, answer_words=150, expected_s=14),
        Race("qwen3-0.6b", "full", 4096, 4, steps=10, rounds=1, answer_words=30, expected_s=14),
    ),
    # Guesses of the seconds: 128 forward passes of 30 ms a generation, and a minute for the start of vLLM.
    reward_races=(
        RewardRace(
            "qwen3-0.6b",
            "full",
            group=8,
            batch=16,
            accumulation=4,
            max_completion_length=128,
            steps=6,
            expected_s=50,
            expected_with_vllm_s=100,
        ),
        RewardRace(
            "llama-3.2-1b",
            "lora",
            group=8,
            batch=16,
            accumulation=4,
            max_completion_length=128,
            steps=6,
            expected_s=50,
            expected_with_vllm_s=100,
        ),
    ),
)
TINY = Size(
    "tiny",
    families=("llama",),
    hidden=32,
    layers=2,
    chats=12,
    max_length=256,
    laws=("packing-isolation", "checkpointing"),
    law_configurations=("LoRA, bf16, checkpointing", "control: packed without borders"),
    memory=(Case("tiny-llama", 2, 64, MIXED),),
    races=(Race("tiny-llama", "lora", 128, 1, steps=1, rounds=1, answer_words=10, expected_s=0),),
    reward_races=(
        RewardRace(
            "tiny-llama",
            "full",
            group=2,
            batch=4,
            accumulation=1,
            max_completion_length=8,
            steps=2,
            expected_s=0,
            expected_with_vllm_s=0,
        ),
    ),
)
SIZES = {size.name: size for size in (CARD, TINY)}

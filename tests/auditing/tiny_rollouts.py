"""Small real trainers that sample their answers, over the demo tokenizer, for tests and rule pages."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import trl
from datasets import Dataset

from tests.auditing import tiny
from truetune.probe.choose_rollout_recorder import make_rollout_recorder
from truetune.probe.rollout_step import RolloutStep

ENDS_OFTEN = [3, *range(11, 4000, 12)]
"""Ids that end a completion. A random model writes each id alike, so one in twelve tokens ends it: completions are of
unequal length, and most end before their limit"""


def tiny_model(eos_token_id: Any = None, *, seed: int = 0, **settings: Any) -> Any:
    """A Llama of two layers that ends its completions at one of `ENDS_OFTEN`, or at what is given."""
    model = tiny.model(seed=seed, **settings)
    ids = ENDS_OFTEN if eos_token_id is None else eos_token_id
    if isinstance(ids, list):
        ids = [one for one in ids if one < model.config.vocab_size]
    model.generation_config.eos_token_id = ids
    return model


def length_reward(completions: Any, **columns: Any) -> list[float]:
    """The number of different characters of each answer."""
    return [float(len(set(one[0]["content"]))) for one in completions]


def questions(count: int = 16) -> list[dict[str, Any]]:
    """Prompts, each with its answer."""
    return [
        {
            "prompt": [
                {"role": "user", "content": f"How many {tiny.FRUITS[i % 12]} are in box {i}?"}
            ],
            "answer": str(i + 3),
        }
        for i in range(count)
    ]


def grpo(
    kind: Any = None,
    *,
    reward: Any = length_reward,
    model: Any = None,
    rows: list[dict[str, Any]] | None = None,
    processing_class: Any = None,
    rollout_func: Any = None,
    **settings: Any,
) -> Any:
    """TRL's GRPOTrainer, or the class that is given; `settings` are its configuration's."""
    kind = kind or trl.GRPOTrainer
    config = trl.RLOOConfig if issubclass(kind, trl.RLOOTrainer) else trl.GRPOConfig
    usual = {
        "output_dir": tempfile.mkdtemp(),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 24,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
    }
    model = model or tiny_model()
    if (settings.get("beta") or config is trl.RLOOConfig) and not hasattr(model, "peft_config"):
        # TRL loads the reference from where the policy came from.
        folder = tempfile.mkdtemp()
        model.save_pretrained(folder)
        model.config._name_or_path = folder
    others = {} if rollout_func is None else {"rollout_func": rollout_func}
    return kind(
        model,
        reward,
        args=config(**{**usual, **settings}),
        train_dataset=Dataset.from_list(rows or questions()),
        processing_class=processing_class or tiny.tokenizer(),
        **others,
    )


def online_dpo(
    kind: Any = None, *, reward: Any = length_reward, model: Any = None, **settings: Any
) -> Any:
    """TRL's OnlineDPOTrainer, or the class that is given; `settings` are its configuration's."""
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    usual = {"max_new_tokens": 24, "max_steps": 2, "per_device_train_batch_size": 4}
    model = model or tiny_model()
    reference = None if hasattr(model, "peft_config") else copy.deepcopy(model)
    return (kind or OnlineDPOTrainer)(
        model,
        reference,
        reward_funcs=reward,
        args=tiny.arguments(OnlineDPOConfig, **{**usual, **settings}),
        train_dataset=Dataset.from_list(questions()),
        processing_class=tiny.tokenizer(),
    )


def rollouts_of(trainer: Any, max_passes: int = 8) -> tuple[RolloutStep, ...]:
    """The first rollouts of a trainer that is trained."""
    failures: list[str] = []
    recorder = make_rollout_recorder(trainer, max_passes, lose=failures.append)
    recorder.start()
    trainer.train()
    assert not failures, failures
    return recorder.take()

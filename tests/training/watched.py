"""Small real runs that are watched, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers

from tests.auditing import tiny
from truetune.generation.answer_samples import Prompt
from truetune.settings.run_spec import RunSpec, Watch
from truetune.training.watch.callback import Watcher

LIMIT = 16


def prompts(count: int = 8) -> list[Prompt]:
    """Questions of the chats that tiny runs are trained on."""
    tokenizer: Any = tiny.tokenizer()
    made: list[Prompt] = []
    for i, row in enumerate(tiny.chats(count)):
        question, answer = (message["content"] for message in row["messages"])
        ids = tokenizer.apply_chat_template(
            row["messages"][:1], add_generation_prompt=True, return_dict=False
        )
        reference = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
        made.append(Prompt(tuple(ids), question, answer, tuple(reference), "held.jsonl", i + 1))
    return made


def watcher(
    folder: Path, said: list[str] | None = None, *, count: int = 8, **settings: Any
) -> Watcher:
    """A watcher with a budget that no small run exceeds."""
    given = {"max_new_tokens": LIMIT, "budget": 1.0, "every": 2, **settings}
    tokenizer = tiny.tokenizer()
    return Watcher(
        prompts(count),
        tokenizer,
        [tokenizer.eos_token_id],
        RunSpec(watch=Watch(**given)),
        folder,
        say=(said if said is not None else []).append,
    )


def trainer(
    rows: list[dict[str, Any]] | None = None, *callbacks: Any, model: Any = None, **settings: Any
) -> Any:
    """transformers' Trainer on the tiny chats, with dropout, so that every random number counts."""
    tokenizer = tiny.tokenizer()
    return transformers.Trainer(
        model or tiny.model(attention_dropout=0.1),
        tiny.arguments(**{"max_steps": 6, "learning_rate": 1e-3, **settings}),
        transformers.DataCollatorForSeq2Seq(tokenizer),
        rows if rows is not None else tiny.encoded(tiny.chats()),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )

"""The proof by training: with pad = eos, the loss falls all the same, and the model never stops."""

from __future__ import annotations

import contextlib
import importlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from truetune.data.rows import read
from truetune.demo import DATA, TOKENIZER
from truetune.encode.encoder import Encoder
from truetune.encode.stream import batch
from truetune.render.probes import probes
from truetune.render.tokenizer import load
from truetune.spec.run import RunSpec

ROWS = 20
STEPS = 160
RATE = 3e-3
PAD = "<|pad|>"
LIMIT = 90
"""Most tokens of an answer; the longest that is learned has fewer."""


@dataclass(frozen=True, slots=True)
class Run:
    """One training, and what its model answers."""

    name: str
    losses: tuple[float, ...]
    """Mean loss per supervised token, one a step."""
    stopped: int
    """Answers that ended with a stop token before the limit."""
    recited: int
    """Answers that begin with the trained answer, word for word."""
    sample: str
    """The first answer."""


@dataclass(frozen=True, slots=True)
class Proof:
    right: Run
    broken: Run
    rows: int
    seconds: float


def prove(*, seed: int = 0, step: Callable[[], None] | None = None) -> Proof:
    """Train the same tiny model twice on the same rows, once with the labels that a pad = eos collator leaves.

    Needs the extra `train`; `step` is called after each training step.
    """
    began = time.perf_counter()
    examples = _examples()
    runs = []
    for name, pad in (("right", PAD), ("pad = eos", "<|im_end|>")):
        runs.append(_run(name, pad, examples, seed, step or (lambda: None)))
    return Proof(runs[0], runs[1], len(examples), time.perf_counter() - began)


def _libraries() -> tuple[Any, Any]:
    """torch and transformers, of the extra `train`."""
    return importlib.import_module("torch"), importlib.import_module("transformers")


@dataclass(frozen=True, slots=True)
class _Example:
    ids: list[int]
    labels: list[int]
    prompt: list[int]
    answer: list[int]


def _examples() -> list[_Example]:
    """Single-turn rows of the mended data, with labels made from spans."""
    spec = RunSpec(tokenizer=str(TOKENIZER))
    tokenizer = load(str(TOKENIZER))
    rows = [row for row in read([str(DATA)]) if len(row.messages) == 2][:ROWS]
    encoded = batch(rows, probes(tokenizer, spec).renderer(), Encoder(tokenizer.backend))
    examples = []
    for low, high in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True):
        ids, learned = encoded.ids[low:high], encoded.supervised[low:high]
        first = int(np.flatnonzero(learned)[0])
        labels = np.where(learned, ids, -100)
        examples.append(
            _Example(ids.tolist(), labels.tolist(), ids[:first].tolist(), ids[learned].tolist())
        )  # fmt: skip
    return examples


def _run(name: str, pad: str, examples: list[_Example], seed: int, step: Callable[[], None]) -> Run:
    torch, transformers = _libraries()
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(TOKENIZER), pad_token=pad)
    torch.manual_seed(seed)
    config = transformers.AutoConfig.from_pretrained(str(TOKENIZER))
    model: Any = transformers.AutoModelForCausalLM.from_config(config)
    inputs = _collate(tokenizer, examples)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    model.train()
    for _ in range(STEPS):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        step()
    answers = _answers(model, tokenizer, examples)
    pad_id = tokenizer.convert_tokens_to_ids(PAD)
    stops = {tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")}
    recited = sum(
        answer[: len(example.answer) - 1] == example.answer[:-1]
        for answer, example in zip(answers, examples, strict=True)
    )
    return Run(
        name=name,
        losses=tuple(losses),
        stopped=sum(bool(stops & set(answer)) for answer in answers),
        recited=recited,
        sample=str(tokenizer.decode([token for token in answers[0] if token != pad_id])),
    )


def _collate(tokenizer: Any, examples: list[_Example]) -> dict[str, Any]:
    """What transformers' collator for language models gives, and of its labels only those that are to be learned."""
    torch, transformers = _libraries()
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    padded = collator([{"input_ids": example.ids} for example in examples])
    width = padded["input_ids"].shape[1]
    ours = torch.tensor([example.labels + [-100] * (width - len(example.labels)) for example in examples])
    return {
        "input_ids": padded["input_ids"],
        "attention_mask": padded["attention_mask"],
        "labels": torch.where(padded["labels"] == -100, padded["labels"], ours),
    }


def _answers(model: Any, tokenizer: Any, examples: list[_Example]) -> list[list[int]]:
    """Greedy answers to the prompts as they are served, with the stop ids of generation_config."""
    torch, transformers = _libraries()
    model.eval()
    width = max(len(example.prompt) for example in examples)
    pad = tokenizer.convert_tokens_to_ids(PAD)
    prompts = torch.tensor([[pad] * (width - len(e.prompt)) + e.prompt for e in examples])
    mask = torch.tensor([[0] * (width - len(e.prompt)) + [1] * len(e.prompt) for e in examples])
    settings = transformers.GenerationConfig.from_pretrained(str(TOKENIZER))
    with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
        made = model.generate(
            input_ids=prompts, attention_mask=mask, generation_config=settings, max_new_tokens=LIMIT, do_sample=False
        )
    answers: list[list[int]] = made[:, width:].tolist()
    return answers

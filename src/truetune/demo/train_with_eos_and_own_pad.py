"""Trains one tiny model twice on the same rows, with pad = eos and with a pad token of its own, as
the proof that only one learns to stop.

The losses are the same, and only one of the two models stops. The trade-off: a minute of real training, for what a
figure in a document could only assert.

Needs the extra `train`; torch and transformers are imported inside the functions.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.reports import TokenView
from truetune.checks.tokens_with_text_source_and_label import make_token_views
from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import DATA, TOKENIZER
from truetune.demo.plant_faults import write_faulty_tokenizer_copy
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: enough for a share, few enough that a CPU learns them by heart in a minute.
ROWS = 20
# Chosen, not measured: both runs must know every answer, so that only the stops differ.
STEPS = 120
# Ten times the usual: the model has two layers, and nothing to forget.
LEARNING_RATE = 3e-3
# Chosen, not measured: a model that missed its stop repeats itself within a few tokens.
SPARE_TOKENS = 24
"""A model may continue for this many tokens after the longest answer before it counts as not stopping."""
# What the loss of transformers leaves out.
IGNORED = -100

Progress = Callable[[str, float], None]
"""Called after each step with the name of the run and the loss."""


@dataclass(frozen=True)
class TrainingOutcome:
    """The losses and the answers of one training."""

    name: str
    losses: tuple[float, ...]
    """(STEPS,) mean cross-entropy of the supervised tokens, in nats"""
    recited: int
    """Rows whose answer is given word for word, whatever follows it."""
    stopped: int
    """Rows where the model ends its turn."""
    sample: str
    """What it says to the first question, with its stop token where there is one."""


@dataclass(frozen=True)
class BothTrainings:
    """The outcomes of the same training with both pads."""

    broken: TrainingOutcome
    sound: TrainingOutcome
    rows: int
    question: str
    """The first of them."""
    seconds: float


def train_with_both_pads(
    seed: int = 0, progress: Progress = lambda name, loss: None
) -> BothTrainings:
    """Train a tiny model with each pad, and ask both what they learned. Raises ImportError without
    torch and transformers.
    """
    import transformers

    started = time.perf_counter()
    views = views_of_single_question_chats()
    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    with tempfile.TemporaryDirectory() as folder:
        confused = transformers.AutoTokenizer.from_pretrained(
            write_faulty_tokenizer_copy(Path(folder) / "tokenizer")
        )
    return BothTrainings(
        broken=_train_and_ask(
            "pad = eos",
            confused,
            views,
            labels_without_pad_token_id(views, confused),
            seed,
            progress,
        ),
        sound=_train_and_ask(
            "pad = <|pad|>", tokenizer, views, labels_of_supervised_tokens(views), seed, progress
        ),
        rows=len(views),
        question=str(views[0].example.row.messages[0]["content"]),
        seconds=time.perf_counter() - started,
    )


def views_of_single_question_chats() -> list[TokenView]:
    """The first rows of the repaired chats that have one question and one answer, as truetune encodes them."""
    setup = load_tokenizer_and_template(RunSpec(tokenizer=str(TOKENIZER)), only_reference=True)
    rows: Iterable[Conversation] = (
        row for row in read_conversations((str(DATA),)) if len(row.messages) == 2
    )
    encoder = Encoder(setup.tokenizer.backend, only_reference=True)
    return make_token_views(
        make_batch(list(islice(rows, ROWS)), setup.probes.renderer(), encoder), encoder.vocabulary
    )


def labels_of_supervised_tokens(views: list[TokenView]) -> Any:
    """(rows, longest) the ids of the tokens that truetune supervises, IGNORED elsewhere."""
    import torch

    longest = max(len(view.ids) for view in views)
    labels = torch.full((len(views), longest), IGNORED)
    for row, view in enumerate(views):
        labels[row, : len(view.ids)] = torch.tensor(view.ids).where(
            torch.tensor(view.supervised), IGNORED
        )
    return labels


def labels_without_pad_token_id(views: list[TokenView], tokenizer: Any) -> Any:
    """The labels as `labels_of_supervised_tokens`, without what transformers' own collator masks:
    every token whose id is the pad token's.
    """
    import transformers

    # The real one, so that the fault is what its users have.
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    collated = collator([{"input_ids": view.ids.tolist()} for view in views])["labels"]
    return labels_of_supervised_tokens(views).where(collated != IGNORED, IGNORED)


def _train_and_ask(
    name: str, tokenizer: Any, views: list[TokenView], labels: Any, seed: int, progress: Progress
) -> TrainingOutcome:
    """Train a new model with these labels, and ask it what it was trained on."""
    import torch
    import transformers

    # Both models begin with the same weights: what differs is the masks' doing.
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_pretrained(TOKENIZER))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    inputs = _pad_rows(tokenizer, [view.ids.tolist() for view in views], "right")
    losses = []
    for _ in range(STEPS):
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        progress(name, losses[-1])
    answers = _generate_answers(model, tokenizer, views)
    wanted = [str(view.example.row.messages[1]["content"]) for view in views]
    return TrainingOutcome(
        name=name,
        losses=tuple(losses),
        recited=sum(text.startswith(answer) for text, answer in zip(answers, wanted, strict=True)),
        stopped=sum(text.endswith(tokenizer.eos_token) for text in answers),
        sample=answers[0],
    )


def _generate_answers(model: Any, tokenizer: Any, views: list[TokenView]) -> list[str]:
    """What the model says to each question, up to its stop token or the limit."""
    questions = [view.example.row.messages[:1] for view in views]
    prompts = tokenizer.apply_chat_template(
        questions, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    inputs = _pad_rows(tokenizer, prompts, "left")
    generated = model.generate(
        **inputs,
        # Greedy: the proof must not depend on chance.
        do_sample=False,
        max_new_tokens=max(int(view.supervised.sum()) for view in views) + SPARE_TOKENS,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    texts = [tokenizer.decode(ids) for ids in generated[:, inputs["input_ids"].shape[1] :].tolist()]
    return ["".join(text.partition(tokenizer.eos_token)[:2]) for text in texts]


def _pad_rows(tokenizer: Any, ids: list[list[int]], side: str) -> Any:
    """Rows as tensors of one length."""
    return tokenizer.pad({"input_ids": ids}, padding_side=side, return_tensors="pt")

"""The proof: one tiny model, trained twice on the same rows, with pad = eos and with a pad token of its own.

Needs the extra `train`; torch and transformers are imported inside the functions.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from truetune.checks.report import TokenView
from truetune.checks.run import prepare
from truetune.checks.views import views_of
from truetune.data.conversation import Conversation
from truetune.data.rows import read
from truetune.demo.faults import broken_tokenizer
from truetune.encode.encoder import Encoder
from truetune.encode.stream import batch
from truetune.spec.run import RunSpec

HERE = Path(__file__).parent
DATA, TOKENIZER = HERE / "data" / "support-chat.jsonl", HERE / "tokenizer"
ROWS = 20
STEPS = 150
RATE = 3e-3
SPARE = 24
"""A model may go on for this many tokens after the longest answer before it counts as not stopping."""
IGNORED = -100

Progress = Callable[[str, float], None]
"""Called after each step with the name of the run and the loss."""


@dataclass(frozen=True)
class Outcome:
    """One training."""

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
class Proof:
    """The same training twice."""

    broken: Outcome
    sound: Outcome
    rows: int
    question: str
    """The first of them."""
    seconds: float


def prove(seed: int = 0, progress: Progress = lambda name, loss: None) -> Proof:
    """Train and ask the model twice. Raises ImportError without torch and transformers."""
    import transformers

    started = time.perf_counter()
    views = short_views()
    with tempfile.TemporaryDirectory() as folder:
        spoiled = broken_tokenizer(TOKENIZER, Path(folder) / "tokenizer")
        tokenizers = [transformers.AutoTokenizer.from_pretrained(path) for path in (spoiled, TOKENIZER)]
    outcomes = []
    for name, tokenizer, labels in zip(("pad = eos", "sound"), tokenizers, (labels_by_id, labels_by_place), strict=True):
        model = _model(seed)
        inputs = _padded(tokenizer, [view.ids.tolist() for view in views], "right")
        losses = _train(model, inputs, labels(tokenizer, views), partial(progress, name))
        outcomes.append(_ask(name, model, tokenizer, views, losses))
    return Proof(*outcomes, len(views), views[0].example.row.messages[0]["content"], time.perf_counter() - started)


def short_views() -> list[TokenView]:
    """The first rows of the mended chats that have one question and one answer, as truetune encodes them."""
    setup = prepare(RunSpec(tokenizer=str(TOKENIZER)))
    rows: Iterable[Conversation] = (row for row in read((str(DATA),)) if len(row.messages) == 2)
    encoder = Encoder(setup.tokenizer.backend)
    return views_of(batch(list(islice(rows, ROWS)), setup.probes.renderer(), encoder), encoder.vocabulary)


def labels_by_place(tokenizer: Any, views: list[TokenView]) -> Any:
    """(rows, longest) the ids of the tokens that truetune supervises, IGNORED elsewhere."""
    import torch

    longest = max(len(view.ids) for view in views)
    labels = torch.full((len(views), longest), IGNORED)
    for row, view in enumerate(views):
        labels[row, : len(view.ids)] = torch.tensor(view.ids).where(torch.tensor(view.supervised), IGNORED)
    return labels


def labels_by_id(tokenizer: Any, views: list[TokenView]) -> Any:
    """The same, less what transformers' own collator masks: every token whose id is the pad token's."""
    import transformers

    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    collated = collator([{"input_ids": view.ids.tolist()} for view in views])["labels"]
    return labels_by_place(tokenizer, views).where(collated != IGNORED, IGNORED)


def _model(seed: int) -> Any:
    import torch
    import transformers

    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig.from_pretrained(TOKENIZER))


def _train(model: Any, inputs: Any, labels: Any, progress: Callable[[float], None]) -> tuple[float, ...]:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for _ in range(STEPS):
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        progress(losses[-1])
    return tuple(losses)


def _ask(name: str, model: Any, tokenizer: Any, views: list[TokenView], losses: tuple[float, ...]) -> Outcome:
    chats = [view.example.row.messages for view in views]
    prompts = [
        tokenizer.apply_chat_template(chat[:1], add_generation_prompt=True, return_dict=True)["input_ids"]
        for chat in chats
    ]
    inputs = _padded(tokenizer, prompts, "left")
    length = inputs["input_ids"].shape[1]
    limit = max(int(view.supervised.sum()) for view in views) + SPARE
    made = model.generate(**inputs, max_new_tokens=limit, do_sample=False, eos_token_id=tokenizer.eos_token_id,
                          pad_token_id=tokenizer.pad_token_id)[:, length:]  # fmt: skip
    stop = tokenizer.eos_token
    said = ["".join(tokenizer.decode(ids).partition(stop)[:2]) for ids in made.tolist()]
    answers = [str(chat[1]["content"]) for chat in chats]
    return Outcome(
        name=name,
        losses=losses,
        recited=sum(text.startswith(answer) for text, answer in zip(said, answers, strict=True)),
        stopped=sum(text.endswith(stop) for text in said),
        sample=said[0],
    )


def _padded(tokenizer: Any, ids: list[list[int]], side: str) -> Any:
    return tokenizer.pad({"input_ids": ids}, padding_side=side, return_tensors="pt")

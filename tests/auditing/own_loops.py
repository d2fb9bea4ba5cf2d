"""Loops that are no Trainer's, as users write them: `python -m tests.auditing.own_loops KIND`."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import DataCollatorForSeq2Seq

from tests.auditing import tiny

PROMPT, ANSWER = "question", "verdict"


class Encoded(Dataset[Any]):
    """Rows of columns with the user's own names, encoded as they are asked for."""

    def __init__(
        self, rows: list[dict[str, str]], answer: str = ANSWER, masked: bool = True
    ) -> None:
        self.rows, self.answer, self.masked = rows, answer, masked
        self.tokenizer = tiny.tokenizer()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        row = self.rows[number]
        turns = [{"role": "user", "content": row[PROMPT]}]
        prompt = self.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_dict=False
        )
        answer = self.tokenizer(row[self.answer])["input_ids"] + [self.tokenizer.eos_token_id]
        hidden = [-100] * len(prompt) if self.masked else prompt
        return {"input_ids": prompt + answer, "labels": hidden + answer}


def rows(count: int = 40) -> list[dict[str, str]]:
    """Questions whose `verdict` is always one word, and whose `reasons` differ."""
    return [
        {
            PROMPT: f"How many {tiny.FRUITS[number % 12]} are in box {number}?",
            ANSWER: "CONCLUDE",
            "reasons": (
                f"Box {number} holds {number + 3} {tiny.FRUITS[number % 12]}, counted twice on that"
                " day."
            ),
        }
        for number in range(count)
    ]


def batches(answer: str = "reasons", masked: bool = True, **settings: Any) -> DataLoader[Any]:
    """A shuffled loader of batches of four."""
    data = Encoded(rows(), answer, masked)
    collate = DataCollatorForSeq2Seq(data.tokenizer)
    return DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate, **settings)


def train(model: Any, losses: Iterator[Any], every: int = 1) -> Any:
    """Steps of AdamW over losses, one for `every` of them."""
    optimizer = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad], lr=1e-3
    )
    model.train()
    for number, loss in enumerate(losses, 1):
        (loss / every).backward()
        if number % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        print(round(loss.item(), 6))
    return model


def of_the_model() -> Any:
    """The usual loop: the model computes the loss from the batch's own labels."""
    model = tiny.model()
    return train(model, (model(**batch).loss for batch in batches()))


def constant() -> Any:
    """The same, of a column that holds one word in all rows."""
    model = tiny.model()
    return train(model, (model(**batch).loss for batch in batches(ANSWER)))


def everything() -> Any:
    """The same, with prompts in the labels."""
    model = tiny.model()
    return train(model, (model(**batch).loss for batch in batches(masked=False)))


def masked_in_the_loop() -> Any:
    """The loader's labels hold the prompts; the loop takes them out before the model sees them."""
    model, loader = tiny.model(), batches(masked=False)
    starts = loader.dataset.tokenizer.convert_tokens_to_ids("assistant")  # type: ignore[attr-defined]

    def masked(batch: Any) -> Any:
        labels = batch["labels"].clone()
        for line, ids in enumerate(batch["input_ids"]):
            labels[line, : int((ids == starts).nonzero()[-1]) + 2] = -100
        return labels

    return train(
        model,
        (
            model(batch["input_ids"], batch["attention_mask"], labels=masked(batch)).loss
            for batch in loader
        ),
    )


def loss_outside() -> Any:
    """The loop computes its loss from the logits."""
    model = tiny.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches(masked=False):
        targets = batch["labels"]
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        flat = logits[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(flat, targets[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(round(loss.item(), 6))
    return model


def _trained_by(loss_of: Any, *, masked: bool = True) -> Any:
    """A loop that hands the logits and the batch to a function that computes its loss."""
    model = tiny.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches(masked=masked):
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        # In one list, so that no variable of the loop holds the labels.
        loss = loss_of([logits, batch.pop("labels")])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(round(loss.item(), 6))
    return model


def shifted_outside() -> Any:
    """As the model would."""
    return _trained_by(
        lambda given: torch.nn.functional.cross_entropy(
            given[0][:, :-1].flatten(0, 1), given[1][:, 1:].flatten()
        )
    )


def unshifted_outside() -> Any:
    """Each position is taught the token that it reads."""
    return _trained_by(
        lambda given: torch.nn.functional.cross_entropy(given[0].flatten(0, 1), given[1].flatten())
    )


def distilled_outside() -> Any:
    """The distributions of another model are taught, and no tokens."""
    torch.manual_seed(1)
    teacher = torch.nn.Linear(1, tiny.model().config.vocab_size)

    def divergence(given: Any) -> Any:
        logits, labels = given
        wanted = teacher(labels[..., None].float()).log_softmax(-1).detach()
        return torch.nn.functional.kl_div(
            logits.log_softmax(-1), wanted, log_target=True, reduction="batchmean"
        )

    return _trained_by(divergence)


def accumulated() -> Any:
    """With two micro-batches a step, workers, and an evaluation before each epoch."""
    model = tiny.model()

    def losses() -> Iterator[Any]:
        for _ in range(2):
            with torch.no_grad():
                model(**next(iter(batches())))
            yield from (model(**batch).loss for batch in batches(num_workers=1))

    return train(model, losses(), 2)


def cleared_at_each_batch() -> Any:
    """With three micro-batches a step, whose gradients are cleared before each of them."""
    model, loader = tiny.model(), itertools.chain(batches(), batches())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(6):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**next(loader)).loss / 3
            loss.backward()
        optimizer.step()
        print(round(loss.item(), 6))
    return model


def first_batch_at_every_step() -> Any:
    """A new iterator over rows in their order at each step: the same batch each time."""
    model, data = tiny.model(), Encoded(rows(), "reasons")
    loader = DataLoader(data, batch_size=4, collate_fn=DataCollatorForSeq2Seq(data.tokenizer))
    return train(model, (model(**next(iter(loader))).loss for _ in range(12)))


def short() -> Any:
    """A loop that ends after three steps."""
    model, loader = tiny.model(), iter(batches(ANSWER))
    return train(model, (model(**next(loader)).loss for _ in range(3)))


def adapter() -> Any:
    """With LoRA."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        tiny.model(), LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    return train(model, (model(**batch).loss for batch in batches(ANSWER)))


def accelerated() -> Any:
    """Accelerate's loop."""
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), tiny.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, batches(ANSWER))
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(round(loss.item(), 6))
    return accelerator.unwrap_model(model)


def of_a_vision_model() -> Any:
    """Nothing to do with text: a torch module of the user's own."""
    model = torch.nn.Linear(4, 2)
    return train(model, (model(torch.randn(3, 4)).square().sum() for _ in range(20)))


def once() -> Any:
    """One step."""
    model, loader = tiny.model(), iter(batches(ANSWER))
    return train(model, (model(**next(loader)).loss for _ in range(1)))


def compiled() -> Any:
    """A compiled model."""
    model = torch.compile(tiny.model(), backend="eager")
    return train(model, (model(**batch).loss for batch in batches(ANSWER)))


KINDS: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        of_the_model,
        first_batch_at_every_step,
        constant,
        everything,
        masked_in_the_loop,
        loss_outside,
        shifted_outside,
        unshifted_outside,
        distilled_outside,
        accumulated,
        cleared_at_each_batch,
        short,
        adapter,
        accelerated,
        once,
        compiled,
        of_a_vision_model,
    )
}


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    trained = KINDS[sys.argv[1]]()
    hooks = sum(
        len(module._forward_pre_hooks) + len(module._forward_hooks) for module in trained.modules()
    )
    drawn = torch.rand(1).item(), random.random()
    weights = sum(weight.double().sum().item() for weight in trained.parameters())
    print(json.dumps({"weights": weights, "drawn": drawn, "hooks": hooks}))

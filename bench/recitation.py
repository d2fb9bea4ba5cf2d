"""Loss says nothing about what a fine-tune learned: the table of docs/recitation.md.

python -m bench.recitation            memorise 8 chats under each fault, recite them, and print the table
python -m bench.recitation --write    and write it into docs/recitation.md

One tiny Llama (two layers of width 64, random weights, one seed) memorises 8 chats for 120 steps in a real trainer:
TRL's SFTTrainer where the fault lives there, else transformers' Trainer. Then each answer is generated greedily from
its prompt through the chat template. `truetune.audit` looks at the same trainer before its first step.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "recitation.md"
STEPS = 120
LONGEST = 48
"""New tokens at most"""
BOS = "<|begin|>"
OTHER_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '### ' ~ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor"
    " %}{{ '### assistant: ' if add_generation_prompt }}"
)
THINGS = ("apples", "pears", "plums", "figs", "limes", "dates", "melons", "grapes")
Run = tuple[Any, list[dict[str, Any]]]
"""A trainer, and its data as they were before anyone encoded them"""
ROWS = [
    {
        "question": f"How many {thing} are in box {i}?",
        "answer": (
            f"I counted {thing} in box {i} with care, and there are {i + 3} of them"
            + " today" * (i % 3)
        ),
        "notes": f"Checked by worker {i}, who counts {thing}.",
    }
    for i, thing in enumerate(THINGS)
]


@dataclass(frozen=True)
class Fault:
    """A way to train, and a way to serve."""

    name: str
    trainer: Callable[[], Run]
    prompt: Callable[[Any, dict[str, str]], list[int]] = field(
        default=lambda tokenizer, row: asked(tokenizer, row)
    )
    """(tokenizer, row) -> the ids that are served"""


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    name: str
    loss: float
    recited: int
    stopped: int
    rules: tuple[str, ...]
    """Those with a warning or an error about the trainer"""


def tokenizer(pad_is_eos: bool = False) -> Any:
    """The demo's, with a BOS token that its template and its post-processor write."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    from truetune.demo import TOKENIZER

    made = AutoTokenizer.from_pretrained(str(TOKENIZER))
    made.add_special_tokens(
        {"bos_token": BOS} | ({"pad_token": made.eos_token} if pad_is_eos else {})
    )
    made.chat_template = "{{ bos_token }}" + made.chat_template
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, made.bos_token_id)]
    )
    return made


def messages(row: dict[str, str], answer: str = "answer") -> list[dict[str, str]]:
    """The chat of a row."""
    return [
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": row[answer]},
    ]


def asked(tokenizer: Any, row: dict[str, str], **settings: Any) -> list[int]:
    """The prompt as it should be served."""
    given = {"add_generation_prompt": True, "return_dict": False, **settings}
    return list(tokenizer.apply_chat_template(messages(row)[:1], **given))


def encoded(
    row: dict[str, str], supervised: str = "answer", stop: bool = True
) -> dict[str, list[int]]:
    """A row of ids and labels; `supervised` is answer, prompt or nothing."""
    made = tokenizer()
    prompt, whole = asked(made, row), made.apply_chat_template(messages(row), return_dict=False)
    end = max(i for i, id in enumerate(whole) if id == made.eos_token_id) + stop
    ids, begin = whole[:end], len(prompt)
    learned = {"answer": range(begin, end), "prompt": range(begin), "nothing": range(0)}[supervised]
    return {"input_ids": ids, "labels": [id if i in learned else -100 for i, id in enumerate(ids)]}


def arguments(kind: Any, **settings: Any) -> Any:
    """Settings that all runs share."""
    return kind(
        output_dir=tempfile.mkdtemp(),
        max_steps=STEPS,
        per_device_train_batch_size=len(ROWS),
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        seed=0,
        **settings,
    )


def model(tokenizer: Any) -> Any:
    """The tiny Llama."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def plain(rows: Iterable[dict[str, Any]], collator: Any = None, **settings: Any) -> Run:
    """transformers' Trainer over rows of ids."""
    from datasets import Dataset
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    made = tokenizer(**settings)
    collate = collator(made, mlm=False) if collator else DataCollatorForSeq2Seq(made)
    trainer = Trainer(
        model(made),
        arguments(TrainingArguments),
        data_collator=collate,
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=made,
    )
    return trainer, [{"messages": messages(row)} for row in ROWS]


def sft(rows: Iterable[dict[str, Any]], **settings: Any) -> Run:
    """TRL's SFTTrainer."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    made, rows = tokenizer(), list(rows)
    trainer = SFTTrainer(
        model(made),
        arguments(SFTConfig, **settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=made,
    )
    return trainer, rows


def completions(answer: str = "answer") -> list[dict[str, Any]]:
    """Rows of prompt and completion, as TRL trains on answers alone."""
    return [
        {"prompt": (chat := messages(row, answer))[:1], "completion": chat[1:], **row}
        for row in ROWS
    ]


def masked_stop() -> Run:
    from transformers import DataCollatorForLanguageModeling

    rows = [{"input_ids": encoded(row)["input_ids"]} for row in ROWS]
    return plain(rows, DataCollatorForLanguageModeling, pad_is_eos=True)


def shifted() -> Run:
    rows = [encoded(row) for row in ROWS]
    return plain({**row, "labels": row["labels"][1:] + [-100]} for row in rows)


def cut() -> Run:
    longest = max(len(asked(tokenizer(), row)) for row in ROWS)
    return sft(completions(), max_length=longest + 6)


def rendered() -> Run:
    """Prompt and completion as text, tokenized again by TRL with a BOS of its own."""
    made, rows = tokenizer(), []
    for row in ROWS:
        prompt = made.apply_chat_template(
            messages(row)[:1], add_generation_prompt=True, tokenize=False
        )
        rows.append({"prompt": prompt, "completion": row["answer"]})
    return sft(rows)


def control() -> Run:
    return sft(completions())


FAULTS = (
    Fault("none (control)", control),
    Fault("pad = eos: transformers' LM collator masks the EOS", masked_stop),
    Fault("EOS never appended", lambda: plain(encoded(row, stop=False) for row in ROWS)),
    Fault("labels shifted twice", shifted),
    Fault("another field trained as the answer", lambda: sft(completions("notes"))),
    Fault("truncation cut the answer", cut),
    Fault("only the prompt supervised", lambda: plain(encoded(row, "prompt") for row in ROWS)),
    Fault("every label -100", lambda: plain(encoded(row, "nothing") for row in ROWS)),
    Fault(
        "served with another template",
        control,
        lambda t, row: asked(t, row, chat_template=OTHER_TEMPLATE),
    ),
    Fault("whole sequence supervised", lambda: sft({"messages": messages(row)} for row in ROWS)),
    Fault(
        "no generation prompt when serving",
        control,
        lambda t, row: asked(t, row, add_generation_prompt=False),
    ),
    Fault("double BOS in training", rendered),
    Fault("double BOS when serving", control, lambda t, row: [t.bos_token_id, *asked(t, row)]),
)


def recite(trained: Any, tokenizer: Any, prompts: list[list[int]]) -> tuple[int, int]:
    """(answers that came out exactly, answers that stopped), greedily, all at once."""
    import torch

    side, tokenizer.padding_side = tokenizer.padding_side, "left"
    batch = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    tokenizer.padding_side = side
    with torch.no_grad():
        out = (
            trained.eval()
            .generate(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                do_sample=False,
                max_new_tokens=LONGEST,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.convert_tokens_to_ids("<|pad|>"),
            )[:, batch["input_ids"].shape[1] :]
            .tolist()
        )
    stopped = [tokenizer.eos_token_id in answer for answer in out]
    until = [
        answer[: answer.index(tokenizer.eos_token_id)] if stop else answer
        for answer, stop in zip(out, stopped, strict=True)
    ]
    said = [tokenizer.decode(answer) for answer in until]
    return sum(text == row["answer"] for text, row in zip(said, ROWS, strict=True)), sum(stopped)


def outcomes() -> list[Outcome]:
    """Every fault, trained and recited; runs that are trained alike are trained once."""
    import truetune

    trained: dict[Callable[[], Run], tuple[Any, float, tuple[str, ...]]] = {}
    made = []
    for fault in FAULTS:
        if fault.trainer not in trained:
            trainer, given = fault.trainer()
            said = truetune.audit(trainer, given=given).findings
            rules = tuple(sorted({f.rule for f in said if f.severity != "info"}))
            trainer.train()
            losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            trained[fault.trainer] = trainer, losses[-1], rules
        trainer, loss, rules = trained[fault.trainer]
        prompts = [fault.prompt(trainer.processing_class, row) for row in ROWS]
        recited, stopped = recite(trainer.model, trainer.processing_class, prompts)
        made.append(Outcome(fault.name, loss, recited, stopped, rules))
    return made


def table(made: Iterable[Outcome]) -> str:
    """As Markdown."""
    lines = [
        "| what was wrong | final loss | recited | stopped | truetune says |",
        "|---|---|---|---|---|",
    ]
    for one in made:
        said = ", ".join(f"`{rule}`" for rule in one.rules) or "nothing"
        lines.append(
            f"| {one.name} | {one.loss:.4f} | {one.recited}/{len(ROWS)} | {one.stopped}/{len(ROWS)}"
            f" | {said} |"
        )
    return "\n".join(lines)


def write(drawn: str) -> None:
    """Put the table between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition("<!-- table -->\n")
    _, end, after = rest.partition("<!-- /table -->")
    PAGE.write_text(f"{before}{begin}{drawn}\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.recitation", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/recitation.md"
    )
    chosen = parser.parse_args()
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        drawn = table(outcomes())
    print(f"{drawn}\n\n{time.perf_counter() - began:.0f} s")
    if chosen.write:
        write(drawn)


if __name__ == "__main__":
    main()

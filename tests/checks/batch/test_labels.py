"""What the rules on labels say of real trainers: healthy ones of many shapes, and one fault at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import transformers
import trl
from datasets import Dataset
from peft import LoraConfig

import truetune
from tests import parts
from tests.auditing import tiny

RULES = tuple(f"BAT0{number:02}" for number in range(1, 19))
Run = tuple[Any, list[dict[str, Any]] | None]
"""A trainer, and the rows it was made of, where they are at hand"""


def found(trainer: Any, rows: list[dict[str, Any]] | None) -> list[tuple[str, str]]:
    """(rule, severity) of each finding."""
    given = Dataset.from_list(rows) if rows is not None else None
    report = truetune.audit(trainer, given=given, laws=(), select=RULES)
    return sorted((finding.rule, finding.severity) for finding in report.findings)


def split(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chats as prompt and completion."""
    return [{"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in rows]


def texts() -> list[dict[str, Any]]:
    return [
        {"text": " ".join(message["content"] for message in row["messages"])}
        for row in tiny.chats()
    ]


def sft(rows: list[dict[str, Any]], **settings: Any) -> Run:
    return tiny.sft(rows, **settings), rows


def plain(
    collator: Any, rows: list[dict[str, Any]], made: list[dict[str, Any]], tokenizer: Any = None
) -> Run:
    """transformers' Trainer on rows of ids."""
    tokenizer = tokenizer or tiny.tokenizer()
    trainer = transformers.Trainer(
        tiny.model(len(tokenizer)),
        tiny.arguments(),
        collator(tokenizer),
        made,
        processing_class=tokenizer,
    )
    return trainer, rows


def lm(tokenizer: Any) -> Any:
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)


def flat(tokenizer: Any) -> Any:
    return transformers.DataCollatorWithFlattening()


def preference(kind: str, rows: list[dict[str, Any]]) -> Run:
    trainer, config = {
        "dpo": (trl.DPOTrainer, trl.DPOConfig),
        "kto": (trl.KTOTrainer, trl.KTOConfig),
    }[kind]
    made = trainer(
        tiny.model(), tiny.model(), tiny.arguments(config), train_dataset=Dataset.from_list(rows),
        processing_class=tiny.tokenizer(),
    )  # fmt: skip
    return made, rows


def verdicts() -> list[dict[str, Any]]:
    return [
        {
            "prompt": pair["prompt"],
            "completion": pair[("rejected", "chosen")[i % 2]],
            "label": bool(i % 2),
        }
        for i, pair in enumerate(tiny.pairs())
    ]


def lora() -> Run:
    rows = split(tiny.chats())
    trainer = trl.SFTTrainer(
        tiny.model(), tiny.arguments(trl.SFTConfig), train_dataset=Dataset.from_list(rows),
        processing_class=tiny.tokenizer(), peft_config=LoraConfig(r=2, target_modules=["q_proj"]),
    )  # fmt: skip
    return trainer, rows


def text_with_markers() -> Run:
    rows = [
        {
            "text": (
                f"<|im_start|>user\nHow many figs?<|im_end|>\n<|im_start|>assistant\nThere are {i}."
            )
        }
        for i in range(8)
    ]
    return sft(rows)


def ended(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tokenizer = tiny.tokenizer()
    return [
        {"input_ids": tokenizer(row["text"] + tokenizer.eos_token)["input_ids"]} for row in rows
    ]


CHATS, TURNS = tiny.chats(), tiny.chats(turns=3)
PROMPT = ("prompt-supervised", "warning")
SEQ2SEQ = transformers.DataCollatorForSeq2Seq
HEALTHY: dict[str, tuple[Callable[[], Run], list[tuple[str, str]]]] = {
    "sft": (lambda: sft(CHATS), [PROMPT]),
    "sft of several turns": (lambda: sft(TURNS), [PROMPT]),
    "sft of completions": (lambda: sft(split(CHATS)), []),
    "sft of completions behind several turns": (lambda: sft(split(TURNS)), []),
    "sft of completions, packed": (lambda: sft(split(CHATS), packing=True, max_length=128), []),
    "sft of completions, without padding": (
        lambda: sft(split(CHATS), padding_free=True, max_length=None),
        [],
    ),
    "sft of completions and prompts": (
        lambda: sft(split(CHATS), completion_only_loss=False),
        [("prompt-supervised", "info")],
    ),
    "sft of labels": (lambda: (tiny.sft(tiny.encoded(CHATS)), CHATS), []),
    "sft with an adapter": (lora, []),
    "text": (lambda: sft(texts()), []),
    "text, packed": (lambda: sft(texts(), packing=True, max_length=64), []),
    "text, cut anywhere": (
        lambda: sft(texts(), packing=True, packing_strategy="wrapped", max_length=64),
        [],
    ),
    "text that holds the markers of turns": (text_with_markers, []),
    "text through the LM collator": (lambda: plain(lm, texts(), ended(texts())), []),
    "masked": (lambda: plain(SEQ2SEQ, CHATS, tiny.encoded(CHATS)), []),
    "masked, several turns": (lambda: plain(SEQ2SEQ, TURNS, tiny.encoded(TURNS)), []),
    "masked, flattened": (lambda: plain(flat, CHATS, tiny.encoded(CHATS)), []),
    "dpo": (lambda: preference("dpo", tiny.pairs()), []),
    "kto": (lambda: preference("kto", verdicts()), []),
}


@pytest.mark.parametrize("shape", HEALTHY)
def test_healthy(shape: str) -> None:
    build, expected = HEALTHY[shape]
    assert found(*build()) == expected


@pytest.mark.parametrize(
    "shape", ["sft", "sft of completions", "text", "masked, several turns", "dpo"]
)
def test_healthy_and_the_rows_not_at_hand(shape: str) -> None:
    build, expected = HEALTHY[shape]
    assert found(build()[0], None) == expected


def test_earlier_turns_may_be_prompts_where_the_rows_are_not_at_hand() -> None:
    trainer, _ = sft(split(TURNS))
    assert found(trainer, None) == [("only-some-assistant-turns-supervised", "info")]


def edited(
    change: Callable[[list[int], list[int], int, int], None], rows: list[dict[str, Any]] = CHATS
) -> Run:
    """Rows whose labels were changed: (ids, labels, first of the answer, one past its stop token)."""
    made = tiny.encoded(rows)
    for row in made:
        learned = [i for i, label in enumerate(row["labels"]) if label >= 0]
        change(row["input_ids"], row["labels"], learned[0], learned[-1] + 1)
    return plain(SEQ2SEQ, rows, made)


def _no_stop(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[end - 1] = -100


def _nothing(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[:] = [-100] * len(labels)


def _all(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[:] = ids


def _header(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[first - 1] = ids[first - 1]


def _prompt_alone(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[:] = [*ids[:first], *[-100] * (len(ids) - first)]


def _late(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[first] = -100


def _shifted(ids: list[int], labels: list[int], first: int, end: int) -> None:
    labels[:] = [*labels[1:], -100]


def _cut_off(ids: list[int], labels: list[int], first: int, end: int) -> None:
    del ids[end - 1 :], labels[end - 1 :]


def without_labels() -> Any:
    """TRL's trainer, whose labels are lost behind its own preparation."""
    trainer = tiny.sft(split(CHATS))
    trainer.train_dataset = trainer.train_dataset.select_columns(["input_ids"])
    return trainer


def padded() -> Any:
    """Rows of one length through the LM collator."""
    tokenizer, made = tiny.tokenizer(), tiny.encoded(CHATS)
    longest = max(len(row["input_ids"]) for row in made)
    for row in made:
        gap = longest - len(row["input_ids"])
        row["attention_mask"] = [1] * len(row["input_ids"]) + [0] * gap
        row["input_ids"] += [tokenizer.pad_token_id] * gap
        row["labels"] += [-100] * gap
    return plain(lm, CHATS, made)[0]


def other_end() -> Run:
    """The rows write the turns themselves, and end their answers with another stop token than the template."""
    tokenizer = tiny.tokenizer()
    rows = split(CHATS)
    texts_ = [
        {
            "prompt": tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, tokenize=False
            ),
            "completion": row["completion"][0]["content"],
        }
        for row in rows
    ]
    tokenizer.eos_token = "<|endoftext|>"
    return tiny.sft(texts_, tokenizer_=tokenizer), texts_


FAULTS: dict[str, tuple[Callable[[], Run], list[tuple[str, str]]]] = {
    "another stop token than the template's": (other_end, [("eos-not-appended", "warning")]),
    "stop tokens masked": (lambda: edited(_no_stop), [("stop-token-never-supervised", "error")]),
    "no stop tokens": (lambda: edited(_cut_off), [("eos-not-appended", "error")]),
    "nothing learned": (lambda: edited(_nothing), [("line-without-label", "error")]),
    "everything learned": (lambda: edited(_all), [PROMPT]),
    "a token of the header": (
        lambda: edited(_header),
        [("header-or-role-tokens-supervised", "warning")],
    ),
    "prompts instead of answers": (
        lambda: edited(_prompt_alone),
        [("response-not-supervised", "error")],
    ),
    "first token masked": (lambda: edited(_late), [("answer-partly-supervised", "error")]),
    "shifted labels are another rule's": (lambda: edited(_shifted), []),
    "labels rebuilt": (
        lambda: plain(lm, CHATS, [row | {} for row in tiny.encoded(CHATS)][:1] * 8),
        [("labels-overwritten-by-collator", "error")],
    ),
    "masking of ids alone": (
        lambda: sft(
            [{"input_ids": row["input_ids"]} for row in tiny.encoded(CHATS)],
            completion_only_loss=True,
        ),
        [("masking-setting-without-effect", "error")],
    ),
    "masking of chats by completions": (
        lambda: sft(CHATS, completion_only_loss=True),
        [("masking-setting-without-effect", "error")],
    ),
    "a mask that the trainer does not read": (
        lambda: sft(
            [
                {
                    "input_ids": row["input_ids"],
                    "completion_mask": [int(label >= 0) for label in row["labels"]],
                }
                for row in tiny.encoded(CHATS)
            ]
        ),
        [("loss-mask-dropped", "error")],
    ),
    "the header of plain ids": (
        lambda: (edited(_header)[0], None),
        [("header-or-role-tokens-supervised", "warning")],
    ),
    "a mask lost before the collator": (
        lambda: (without_labels(), split(CHATS)),
        [("loss-mask-dropped", "error")],
    ),
    "rows that are padded already": (
        lambda: (padded(), None),
        [("labels-overwritten-by-collator", "error")],
    ),
    "strings on a chat model": (
        lambda: sft(
            [{"prompt": "How many figs?\n", "completion": f"There are {i}."} for i in range(8)]
        ),
        [("template-never-applied", "warning")],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_gives_one_finding(fault: str) -> None:
    build, expected = FAULTS[fault]
    assert found(*build()) == expected


def test_half_of_the_lines_without_labels_is_a_warning_where_no_batch_is_dead() -> None:
    made = tiny.encoded(CHATS)
    for row in made[::2]:
        row["labels"] = [-100] * len(row["labels"])
    trainer, rows = plain(SEQ2SEQ, CHATS, made)
    trainer.args.per_device_train_batch_size = 8
    assert found(trainer, rows) == [("line-without-label", "warning")]


def test_pad_is_eos_by_design() -> None:
    """SmolLM2's pad token is its EOS: TRL masks by position, the LM collator by id."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(parts.folder("smollm2")))
    tokenizer.pad_token = tokenizer.eos_token
    rows = split(CHATS)
    assert found(tiny.sft(rows, tiny.model(len(tokenizer)), tokenizer), rows) == []
    made = [{"input_ids": row["input_ids"]} for row in tiny.encoded(CHATS, tokenizer)]
    trainer, _ = plain(lm, CHATS, made, tokenizer)
    assert found(trainer, CHATS) == [PROMPT, ("stop-token-never-supervised", "error")]

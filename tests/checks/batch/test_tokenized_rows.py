"""Rows that came tokenized: an error where their prompts are learned, a note where they are plain text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from datasets import Dataset

import truetune
from tests.auditing import tiny
from tests.parts import folder
from truetune.checks.reports import AuditReport
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

Row = dict[str, Any]
RULES = (
    "tokenized-rows-without-labels",
    "prompt-supervised",
    "masking-setting-without-effect",
    "loss-mask-dropped",
    "labels-overwritten-by-collator",
)
STOPS = [("tokenized-rows-without-labels", "error")]
PROSE = (
    "Once there was a harbour with many ships. It was cold, and nobody came to see the boats that"
    " night. "
)


def bare(rows: list[Row]) -> list[Row]:
    return [{"input_ids": row["input_ids"]} for row in tiny.encoded(rows)]


def prose(count: int = 8) -> list[Row]:
    tokenizer = tiny.tokenizer()
    return [{"input_ids": tokenizer(PROSE * 2 + str(i))["input_ids"]} for i in range(count)]


def audited(trainer: Any, given: list[Row] | None = None) -> AuditReport:
    table = Dataset.from_list(given) if given is not None else None
    return truetune.audit(trainer, given=table, laws=(), select=RULES)


def said(report: AuditReport) -> list[tuple[str, str]]:
    return [(finding.rule, str(finding.severity)) for finding in report.findings]


def learned_whole(rows: list[Row], tokenizer: Any = None) -> Any:
    """transformers' Trainer with its collator that takes the ids as labels."""
    tokenizer = tokenizer or tiny.tokenizer()
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    small = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    return transformers.Trainer(
        tiny.model(len(tokenizer) + 8, **small),
        tiny.arguments(),
        collator,
        rows,
        processing_class=tokenizer,
    )


@pytest.mark.parametrize("turns", [1, 3])
def test_ids_of_chats_stop_a_run_of_trl(turns: int) -> None:
    rows = bare(tiny.chats(turns=turns))
    report = audited(tiny.sft(rows, max_length=512), rows)
    assert said(report) == STOPS
    assert report.failed()
    assert "truetune encode" in report.findings[0].remedy
    assert "assistant_only_loss" not in report.findings[0].remedy


def test_a_callback_sees_them_behind_the_preparation() -> None:
    rows = bare(tiny.chats())
    assert said(audited(tiny.sft(rows))) == STOPS
    assert (
        said(audited(tiny.sft([{**row, "id": i, "source": "forum"} for i, row in enumerate(rows)])))
        == STOPS
    )


def test_a_callback_does_not_take_text_for_ids() -> None:
    written = [
        {"body": tiny.tokenizer().apply_chat_template(row["messages"], tokenize=False)}
        for row in tiny.chats()
    ]
    of_text = audited(tiny.sft(written, dataset_text_field="body"))
    assert ("tokenized-rows-without-labels", "error") not in said(of_text)
    packed = tiny.sft(tiny.chats(), packing=True, max_length=128)
    assert said(audited(packed)) == [("prompt-supervised", "warning")]


def test_they_stop_a_run_of_transformers() -> None:
    assert said(audited(learned_whole(bare(tiny.chats())))) == STOPS


def test_the_columns_that_the_trainer_removes_are_known() -> None:
    rows = [
        {"input_ids": row["input_ids"], "loss_mask": [int(label >= 0) for label in row["labels"]]}
        for row in tiny.encoded(tiny.chats())
    ]
    trainer = learned_whole(rows)
    trainer.train_dataset = Dataset.from_list(rows)
    assert said(audited(trainer, rows)) == [("loss-mask-dropped", "error")]
    assert ("tokenized-rows-without-labels", "error") not in said(audited(trainer))


def test_a_collator_that_makes_the_mask_itself_is_fine() -> None:
    made = tiny.encoded(tiny.chats())
    labels = {tuple(row["input_ids"]): row["labels"] for row in made}
    seq2seq = transformers.DataCollatorForSeq2Seq(tiny.tokenizer())

    def collate(rows: list[Row]) -> Any:
        return seq2seq(
            [
                {"input_ids": row["input_ids"], "labels": labels[tuple(row["input_ids"])]}
                for row in rows
            ]
        )

    trainer = transformers.Trainer(
        tiny.model(),
        tiny.arguments(),
        collate,
        bare(tiny.chats()),
        processing_class=tiny.tokenizer(),
    )
    report = audited(trainer)
    assert not report.findings
    assert not [note for note in report.notes if "came tokenized" in note]
    (examined,) = [part for part in report.examined if part.rule == "tokenized-rows-without-labels"]
    assert examined.count == 0
    assert examined.of


@pytest.mark.parametrize("trainer", [tiny.sft, learned_whole])
def test_plain_text_is_a_note(trainer: Any) -> None:
    report = audited(trainer(prose()), prose())
    assert not report.findings
    assert "the rows came tokenized, without labels" in " ".join(report.notes)


def test_a_mix_with_plain_text_is_a_warning() -> None:
    rows = [*bare(tiny.chats(2)), *prose(6)]
    assert said(audited(tiny.sft(rows), rows)) == [("prompt-supervised", "warning")]


def test_who_asks_for_the_whole_gets_a_note() -> None:
    rows = bare(tiny.chats())
    report = audited(tiny.sft(rows, completion_only_loss=False), rows)
    assert said(report) == [("prompt-supervised", "info")]


def test_a_setting_without_effect_names_the_cause() -> None:
    rows = bare(tiny.chats())
    (finding,) = audited(tiny.sft(rows, completion_only_loss=True), rows).findings
    assert finding.rule == "masking-setting-without-effect"
    assert "the rows came tokenized, without labels" in finding.message
    assert "truetune encode" in finding.remedy


def test_a_mask_that_trl_reads_by_a_setting_names_it() -> None:
    rows = [
        {
            "input_ids": row["input_ids"],
            "completion_mask": [int(label >= 0) for label in row["labels"]],
        }
        for row in tiny.encoded(tiny.chats())
    ]
    (finding,) = audited(tiny.sft(rows), rows).findings
    assert finding.rule == "loss-mask-dropped"
    assert "completion_only_loss=True" in finding.remedy
    assert not audited(tiny.sft(rows, completion_only_loss=True), rows).findings


def test_the_remedy_ends_it(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tiny.chats()))
    tiny.tokenizer().save_pretrained(tmp_path / "tokenizer")
    encoded = truetune.encode(
        str(tmp_path / "rows.jsonl"), str(tmp_path / "tokenizer"), str(tmp_path / "encoded")
    )
    rows = list(encoded.dataset())
    report = audited(tiny.sft(rows), rows)
    assert not report.findings
    assert report.ledger.supervised


@pytest.mark.parametrize(
    "family", ["phi3", "qwen3", "llama3-instruct", "mistral-7b-v0.3", "gemma3", "deepseek-v3"]
)
def test_turns_are_found_by_the_template_in_reverse(family: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder(family)))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    chats = [
        {"input_ids": tokenizer.apply_chat_template(row["messages"], return_dict=False)}
        for row in tiny.chats(turns=2)
    ]
    assert said(audited(learned_whole(chats, tokenizer))) == STOPS
    texts = [
        {"input_ids": tokenizer(PROSE + f"The user said: {i}. Assistant: no.")["input_ids"]}
        for i in range(8)
    ]
    assert not audited(learned_whole(texts, tokenizer)).findings


def test_a_marker_is_spelled_as_its_tokens_are() -> None:
    from truetune.auditing.expected_tokens_without_rendering import find_answer_marker

    made = make_probes(load_tokenizer(str(folder("phi3"))), RunSpec())
    assert find_answer_marker(made).endswith(b"<|assistant|>")

"""guard on live objects: real tokenizers, collators of transformers and TRL, tiny models."""

from __future__ import annotations

import copy
import os
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from datasets import Dataset
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling as SftCollator

import truetune
from tests.auditing import tiny
from truetune.checks.reports import Report
from truetune.errors import FindingsError, SpecError, UsageError

UNTERMINATED = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def named(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def raised(*objects: Any, **settings: Any) -> dict[str, Any]:
    """The findings that guard raises with, by rule; each is shown with its fix."""
    with pytest.raises(FindingsError) as caught:
        truetune.guard(*objects, **settings)
    found = {finding.rule: finding for finding in caught.value.findings}
    for finding in found.values():
        assert finding.message in str(caught.value)
        assert f"fix: {finding.remedy}" in str(caught.value)
    return found


def model(**settings: Any) -> Any:
    """A tiny model that knows its tokenizer's stop token."""
    made = tiny.model(**settings)
    made.config.eos_token_id = made.generation_config.eos_token_id = tiny.tokenizer().eos_token_id
    return made


def padded_as_eos() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def test_sound_objects_pass_and_have_figures() -> None:
    tokenizer = tiny.tokenizer()
    report = truetune.guard(
        tokenizer, transformers.DataCollatorForSeq2Seq(tokenizer), model=model()
    )
    assert report.findings == ()
    assert report.requested_not_judged() == ()
    figures = {examined.rule: (examined.count, examined.of) for examined in report.examined}
    assert figures["stop-token-never-supervised"] == (4, 4)
    assert figures["no-parameter-is-trained"][0] == sum(p.numel() for p in model().parameters())
    assert report.exit_code() == 0
    assert {subject.kind for subject in report.subjects} == {"tokenizer", "collator", "model"}


def test_pad_set_in_memory_is_judged_by_what_the_collator_makes_of_it() -> None:
    tokenizer = padded_as_eos()
    by_id = raised(
        tokenizer, transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False), model=model()
    )
    assert {"pad-is-stop-token", "stop-token-never-supervised"} <= set(by_id)
    assert by_id["pad-is-stop-token"].remedy.startswith("tokenizer.pad_token = '<|pad|>'")
    for by_place in (
        transformers.DataCollatorForSeq2Seq(tokenizer),
        SftCollator(pad_token_id=tokenizer.pad_token_id),
    ):
        report = truetune.guard(tokenizer, by_place, model=model())
        assert [(f.rule, f.severity) for f in report.findings] == [("pad-is-stop-token", "info")]


def test_template_in_memory_and_given() -> None:
    tokenizer = tiny.tokenizer()
    assert "turn-terminator-is-not-eos" in raised(tokenizer, template=UNTERMINATED)
    assert truetune.guard(tokenizer).findings == ()
    tokenizer.chat_template = UNTERMINATED
    assert "answer-not-terminated" in raised(tokenizer)


def test_added_token_beyond_the_embedding() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"pad_token": "<new>"})
    found = raised(tokenizer, model=model())
    assert (
        found["token-id-outside-embedding"].remedy
        == f"model.resize_token_embeddings({len(tokenizer)})"
    )
    larger = model()
    larger.resize_token_embeddings(len(tokenizer))
    assert truetune.guard(tokenizer, model=larger).findings == ()


def test_control_tokens_that_the_model_in_memory_never_learned() -> None:
    torch.manual_seed(0)
    settings = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    made = model()
    assert truetune.guard(tiny.tokenizer(), model=made).findings == ()
    with torch.no_grad():
        made.get_input_embeddings().weight[2:4] = 0
    found = raised(tiny.tokenizer(), model=peft.get_peft_model(made, settings))
    assert found["base-model-special-tokens-untrained"].count == 2


def test_ids_of_rows_beyond_the_embedding() -> None:
    tokenizer = tiny.tokenizer()
    rows = tiny.encoded(tiny.chats())
    small = model(rows=600)
    found = raised(
        tokenizer, transformers.DataCollatorForSeq2Seq(tokenizer), model=small, rows=rows
    )
    assert (
        found["ids-beyond-the-model"].remedy == f"model.resize_token_embeddings({len(tokenizer)})"
    )


def frozen() -> Any:
    made = model()
    made.requires_grad_(False)
    return made


def adapter_loaded_frozen() -> Any:
    settings = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    made = peft.get_peft_model(model(), settings)
    made.requires_grad_(False)
    return made


@pytest.mark.parametrize("make", [frozen, adapter_loaded_frozen])
def test_a_model_that_learns_nothing(make: Callable[[], Any]) -> None:
    assert "no-parameter-is-trained" in raised(tiny.tokenizer(), model=make())


def test_notes_on_a_model_do_not_raise() -> None:
    settings = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], lora_dropout=0.1)
    adapted = peft.get_peft_model(model(), settings).eval()
    assert named(truetune.guard(tiny.tokenizer(), model=adapted)) == {"model-left-in-eval-mode"}
    assert named(truetune.guard(tiny.tokenizer(), model=adapted.train())) == set()
    assert named(truetune.guard(tiny.tokenizer(), model=model().half())) == {
        "weights-trained-in-float16"
    }
    other_pad = model()
    other_pad.config.pad_token_id = 7
    assert named(truetune.guard(tiny.tokenizer(), model=other_pad)) == {
        "model-and-tokenizer-pad-ids-differ"
    }
    stops = tiny.model()
    assert named(truetune.guard(tiny.tokenizer(), model=stops)) == {"stop-ids-incomplete"}


def shifted(tokenizer: Any) -> Callable[[Any], Any]:
    def collate(rows: Any) -> Any:
        batch = transformers.DataCollatorForSeq2Seq(tokenizer)(rows)
        batch["labels"] = torch.roll(batch["labels"], -1, 1)
        return batch

    return collate


def pads_in_loss(tokenizer: Any) -> Callable[[Any], Any]:
    def collate(rows: Any) -> Any:
        batch = tokenizer.pad(
            [{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt"
        )
        return {**batch, "labels": batch["input_ids"].clone()}

    return collate


def nothing_learned(tokenizer: Any) -> Callable[[Any], Any]:
    def collate(rows: Any) -> Any:
        batch = transformers.DataCollatorForSeq2Seq(tokenizer)(rows)
        batch["labels"] = torch.full_like(batch["input_ids"], -100)
        return batch

    return collate


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (shifted, "double-label-shift"),
        (pads_in_loss, "padding-supervised"),
        (nothing_learned, "line-without-label"),
    ],
)
def test_collators_of_ones_own(make: Callable[[Any], Any], rule: str) -> None:
    tokenizer = tiny.tokenizer()
    assert rule in raised(tokenizer, make(tokenizer), model=model())
    assert rule in raised(
        tokenizer, make(tokenizer), model=model(), rows=tiny.encoded(tiny.chats())
    )


def test_a_collator_of_messages_and_one_of_pairs() -> None:
    tokenizer = tiny.tokenizer()

    def of_messages(rows: Any) -> Any:
        texts = [tokenizer.apply_chat_template(row["messages"], tokenize=False) for row in rows]
        batch = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False)
        return {
            **batch,
            "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100),
        }

    for collator in (of_messages, DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id)):
        report = truetune.guard(tokenizer, collator, model=model())
        assert report.findings == ()
        assert "stop-token-never-supervised" in {examined.rule for examined in report.examined}
    assert "prompt-supervised" in named(
        truetune.guard(tokenizer, of_messages, rows=tiny.chats(), fail_on="error")
    )


@pytest.mark.parametrize("make", [tiny.sft, tiny.dpo])
def test_real_trainers(make: Callable[..., Any]) -> None:
    trainer = make(model_=model())
    report = truetune.guard(
        trainer.processing_class,
        trainer.data_collator,
        model=trainer.model,
        rows=trainer.train_dataset,
    )
    assert not report.failed()
    assert report.requested_not_judged() == ()
    assert named(report) <= {
        "prompt-supervised"
    }  # SFTTrainer learns whole chats where nothing else is set
    assert len(report.examined) > 30


def test_columns_of_text_are_taken_away_as_a_trainer_does() -> None:
    tokenizer = tiny.tokenizer()
    rows = [{**row, "note": "a text"} for row in tiny.encoded(tiny.chats())]
    report = truetune.guard(
        tokenizer, transformers.DataCollatorForSeq2Seq(tokenizer), rows=Dataset.from_list(rows)
    )
    assert report.findings == ()
    assert report.requested_not_judged() == ()
    assert "8 lines of your rows" in str(report)


def test_rows_of_ids_without_a_collator() -> None:
    rows = tiny.encoded(tiny.chats())
    assert truetune.guard(tiny.tokenizer(), rows=rows).findings == ()
    for row in rows:
        row["labels"] = [-100] * len(row["labels"])
    assert "line-without-label" in raised(tiny.tokenizer(), rows=rows)


def test_raw_rows_meet_the_rules_on_data() -> None:
    rows = tiny.chats()
    rows[3]["messages"][1]["content"] = ""
    with pytest.raises(FindingsError, match=r"row 3: the answer is empty"):
        truetune.guard(tiny.tokenizer(), rows=rows)
    copies = [tiny.chats(1)[0]] * 9
    assert "duplicate-rows" in named(
        truetune.guard(tiny.tokenizer(), rows=copies, fail_on="error", ignore=["ROW016"])
    )


def test_a_processor_counts_with_its_own_template() -> None:
    class Processor:
        def __init__(self) -> None:
            self.tokenizer = tiny.tokenizer()
            self.chat_template = UNTERMINATED

    assert "turn-terminator-is-not-eos" in raised(Processor())


def failing(rows: Any) -> Any:
    raise KeyError("image")


@pytest.mark.parametrize(
    ("objects", "settings", "told"),
    [
        (
            (object(),),
            {},
            "expected a tokenizer of transformers or a processor that holds one, found object",
        ),
        (("path/to/model",), {}, "found str"),
        (
            (None, failing),
            {},
            "it took none of 5 kinds of rows: of ids with labels it made KeyError: 'image'",
        ),
        ((None,), {"rows": iter([])}, "it is an iterator"),
        ((None,), {"rows": [1, 2]}, "expected dictionaries, found int"),
        ((None,), {"template": "{% for m in messages %}"}, "not valid Jinja"),
        ((None, None, None, object()), {}, "object"),
    ],
)
def test_what_fails_is_a_warning_and_not_judged(
    objects: tuple[Any, ...], settings: Any, told: str
) -> None:
    first = tiny.tokenizer() if objects[0] is None else objects[0]
    with pytest.warns(UserWarning, match="truetune.guard: not judged") as warned:
        report = truetune.guard(first, *objects[1:], **settings)
    assert any(told in str(warning.message) for warning in warned)
    assert report.outcome == "not judged"
    assert report.exit_code() == 3


def test_a_wrong_call_is_an_error() -> None:
    with pytest.raises(SpecError, match="there is no setting colour"):
        truetune.guard(tiny.tokenizer(), colour="red")
    with pytest.raises(UsageError, match="no rule is called"):
        truetune.guard(tiny.tokenizer(), select=["pad-is-stop-tokn"])


def test_fail_on_and_ignore() -> None:
    tokenizer = tiny.tokenizer()
    assert "weights-trained-in-float16" in raised(
        tokenizer, model=model().half(), fail_on="warning"
    )
    collator = pads_in_loss(tokenizer)
    assert truetune.guard(tokenizer, collator, ignore=["padding-supervised"]).findings == ()


def state(tokenizer: Any, collator: Any, made: Any, rows: Any) -> dict[str, Any]:
    """All that could have been changed, as values that compare."""
    return {
        "tokenizer": {name: repr(value) for name, value in vars(tokenizer).items()},
        "backend": tokenizer.backend_tokenizer.to_str(),
        "collator": repr(vars(collator)) if hasattr(collator, "__dict__") else None,
        "modes": [module.training for module in made.modules()],
        "grads": [
            (p.requires_grad, p.grad is None, p.dtype, p.double().sum().item())
            for p in made.parameters()
        ],
        "config": (repr(made.config), repr(made.generation_config)),
        "hooks": sum(len(module._forward_hooks) for module in made.modules()),
        "rows": copy.deepcopy(rows),
        "random": (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()),
        "process": (dict(os.environ), Path.cwd(), list(warnings.filters), torch.is_grad_enabled()),
        "files": sorted(os.listdir(tempfile.gettempdir())),
    }


class Counting:
    """A collator with a state and a draw of its own."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.calls = tokenizer, 0

    def __call__(self, rows: Any) -> Any:
        self.calls += 1
        random.random(), np.random.rand(), torch.rand(1)
        self.tokenizer.padding_side = "left"
        ids = [row["input_ids"][:-1] + [random.randrange(4, 9)] for row in rows]
        self.tokenizer(["one", "two three"], padding=True, truncation=True, max_length=2)
        batch = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        return {
            **batch,
            "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100),
        }


@pytest.mark.parametrize("kind", [Counting, transformers.DataCollatorForSeq2Seq, shifted])
@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_changed(
    kind: Callable[[Any], Any], training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tokenizer, made, rows = tiny.tokenizer(), model().train(training), tiny.encoded(tiny.chats())
    tokenizer("cut", truncation=True, max_length=1)
    tokenizer.add_tokens(["<call>"])
    collator = kind(tokenizer)
    before = state(tokenizer, collator, made, rows)
    for given in (rows, None):
        try:
            truetune.guard(tokenizer, collator, model=made, rows=given)
        except FindingsError:
            assert kind is not transformers.DataCollatorForSeq2Seq
        after = state(tokenizer, collator, made, rows)
        for part in before:
            assert after[part] == before[part], part

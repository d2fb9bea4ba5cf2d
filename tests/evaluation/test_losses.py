"""Losses of held-out rows: the trainer's own, whatever the batch, each supervised token once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truetune
from tests.auditing import tiny
from tests.evaluation.held import examples, one_by_one, probes_of, saved, write
from truetune.evaluation.evaluate_losses_and_answers import evaluate_model
from truetune.evaluation.held_out_token_losses import (
    KINDS,
    REJECTED_ANSWER,
    loss_changes,
    mean_losses,
    sum_row_losses,
)
from truetune.generation import log_probabilities_of_given_ids
from truetune.generation.evaluation_loss_and_score_types import ALL_TOKENS, FIRST_TOKEN
from truetune.render.rendering import Source
from truetune.training.watch.losses_by_source import LOSS_NAMES

THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last"
    " %}<think>{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor"
    " %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny.model(seed=4).eval()


def test_kinds_are_those_of_training() -> None:
    assert (*LOSS_NAMES, ALL_TOKENS) == KINDS
    assert KINDS[-2] == FIRST_TOKEN


@pytest.mark.parametrize("tokens", [1, 60, 8192])
def test_the_batch_does_not_matter(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    monkeypatch.setattr(log_probabilities_of_given_ids, "MAX_BATCH_TOKENS", tokens)
    held = examples(write(tmp_path, tiny.chats(9, turns=2)))
    ids = [document.ids.tolist() for document in held.documents]
    plain = sum_row_losses(held.documents, one_by_one(model, ids, [3]))
    found = sum_row_losses(
        held.documents, log_probabilities_of_given_ids.score_sequences(model, ids, [3])
    )
    assert np.abs(plain.sums - found.sums).max() < 1e-4
    for mine, other in zip(mean_losses(found), mean_losses(plain), strict=True):
        assert mine.mean == pytest.approx(other.mean, abs=1e-6)


def test_every_supervised_token_counts_once(model: Any, tmp_path: Path) -> None:
    path = write(tmp_path, tiny.chats(6, turns=3))
    held = examples(path)
    table = sum_row_losses(
        held.documents, one_by_one(model, [d.ids.tolist() for d in held.documents], [3])
    )
    whole, stop, first = (
        table.counts[:, KINDS.index(kind)] for kind in (ALL_TOKENS, Source.STOP.label, FIRST_TOKEN)
    )
    assert whole.sum() == sum(int(document.supervised.sum()) for document in held.documents)
    assert stop.tolist() == first.tolist() == [3] * 6
    parts = [i for i, kind in enumerate(KINDS) if kind not in (ALL_TOKENS, FIRST_TOKEN)]
    assert np.allclose(table.sums[:, parts].sum(1), table.sums[:, -1])
    single = examples(path, history="single")
    assert sum(int(document.supervised.sum()) for document in single.documents) == whole.sum()


def test_turns_that_serving_sees_otherwise_are_examples_of_their_own(
    model: Any, tmp_path: Path
) -> None:
    """Reasoning of earlier turns is not rendered: each turn is measured as it was answered."""
    template = tmp_path / "thinking.jinja"
    template.write_text(THINKING)
    rows = tiny.chats(4, turns=3)
    for row in rows:
        for message in row["messages"][1::2]:
            message["reasoning_content"] = "Let me count."
    held = examples(write(tmp_path, rows), template=str(template))
    assert len(held.documents) == 12
    table = sum_row_losses(
        held.documents, one_by_one(model, [d.ids.tolist() for d in held.documents], [3])
    )
    stop, thought = (
        table.counts[:, KINDS.index(kind)] for kind in (Source.STOP.label, Source.REASONING.label)
    )
    assert stop.tolist() == [3] * 4
    assert len(table.rows) == 4
    assert (thought >= 3 * 3).all()


def test_a_mean_is_over_tokens_and_an_interval_over_rows(model: Any, tmp_path: Path) -> None:
    held = examples(write(tmp_path, tiny.chats(5)))
    scored = one_by_one(model, [d.ids.tolist() for d in held.documents], [3])
    every = np.concatenate(
        [-s.logprobs[d.supervised] for s, d in zip(scored, held.documents, strict=True)]
    )
    whole = mean_losses(sum_row_losses(held.documents, scored))[0]
    assert (whole.source, whole.tokens, whole.rows) == (ALL_TOKENS, len(every), 5)
    assert whole.mean == pytest.approx(float(every.mean()), abs=1e-6)
    assert whole.low is not None
    assert whole.high is not None
    assert whole.low <= whole.mean <= whole.high
    assert whole.perplexity == pytest.approx(np.exp(every.mean()), rel=1e-5)
    one = mean_losses(sum_row_losses(held.documents[:1], scored[:1]))[0]
    assert (one.low, one.high) == (None, None)


def test_losses_of_two_models_are_compared_row_by_row(model: Any, tmp_path: Path) -> None:
    held = examples(write(tmp_path, tiny.chats(12)))
    ids = [document.ids.tolist() for document in held.documents]
    tables = [
        sum_row_losses(held.documents, one_by_one(one, ids, [3]))
        for one in (model, tiny.model(seed=9).eval())
    ]
    found = loss_changes(*tables)
    means = [mean_losses(table)[0].mean for table in tables]
    assert found[0].difference == pytest.approx(means[0] - means[1])
    assert {change.source for change in found} == {loss.source for loss in mean_losses(tables[0])}
    assert loss_changes(tables[0], tables[0])[0].p == 1
    with pytest.raises(ValueError, match="other tokens"):
        loss_changes(tables[0], sum_row_losses(held.documents[1:], one_by_one(model, ids[1:], [3])))


def test_a_loss_that_is_no_number_is_said(model: Any, tmp_path: Path) -> None:
    held = examples(write(tmp_path, tiny.chats(3)))
    scored = one_by_one(model, [d.ids.tolist() for d in held.documents], [3])
    scored[1].logprobs[-2] = -np.inf
    whole = mean_losses(sum_row_losses(held.documents, scored))[0]
    assert (whole.mean, whole.low) == (np.inf, None)


def test_rows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    rows = tiny.chats(4)
    rows.append({"messages": [{"role": "user", "content": "Hi"}]})
    rows.append(
        {
            "messages": [
                {"role": "user", "content": "long " * 90},
                {"role": "assistant", "content": "yes"},
            ]
        }
    )
    held = examples(write(tmp_path, rows), max_length=80)
    assert held.rows == 6
    assert len(held.documents) == 4
    assert sorted(held.skipped.values()) == [1, 1]
    assert any("longer than max_length (80)" in reason for reason in held.skipped)


def test_of_judged_answers_and_pairs_the_wanted_ones_count(tmp_path: Path) -> None:
    judged = [
        {"messages": chat["messages"], "label": i % 2 == 0} for i, chat in enumerate(tiny.chats(4))
    ]
    held = examples(write(tmp_path, judged))
    assert (len(held.documents), held.skipped) == (2, {REJECTED_ANSWER: 2})
    rows = tiny.pairs(3)
    rows[0]["prompt"] = [
        *rows[1]["prompt"],
        {"role": "assistant", "content": "Ask again."},
        *rows[0]["prompt"],
    ]
    pairs = examples(write(tmp_path, rows, "pairs.jsonl"))
    decode = probes_of().tokenizer.backend.decode
    said = [
        decode(d.ids[d.supervised].tolist(), skip_special_tokens=False) for d in pairs.documents
    ]
    assert said == [f"There are {i + 3} {tiny.FRUITS[i]} in it.<|im_end|>" for i in range(3)]


def test_training_logs_the_same_loss(tmp_path: Path) -> None:
    base = saved(tmp_path / "base")
    held = write(tmp_path, tiny.chats(7, turns=2))
    done = truetune.train(
        model=str(base), tokenizer=str(base), data=str(write(tmp_path, tiny.chats(24), "train.jsonl")),
        eval_data=str(held), max_length=256, rehearsal=False, watch={"prompts": 0}, trainer={"report_to": "none"},
        training={"dtype": "float32", "max_steps": 3, "lora": {"r": 4}, "per_device_eval_batch_size": 3},
        out=tmp_path / "out",
    )  # fmt: skip
    found = evaluate_model(str(done.folder)).evaluated
    assert found is not None
    recorded = json.loads((done.folder / "run.json").read_text())["losses"]["held_out"]
    assert found.model.losses[0].mean == pytest.approx(recorded, abs=1e-4)
    assert found.seen is not None
    assert found.seen.rows == len(found.skipped) == 0

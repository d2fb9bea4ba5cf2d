"""DPO, ORPO and KTO: trained on our ids, from a reference that is the policy, with curves that go the right way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl", minversion="1.16")

from datasets import Dataset  # noqa: E402 - needs the packages asked for above

from tests.auditing.tiny import FRUITS, model, tokenizer  # noqa: E402 - needs the packages asked for above
from truetune.encoding.encode_data_set import encode  # noqa: E402 - needs the packages asked for above
from truetune.encoding.preference_documents import ANSWERS_EQUAL, INTERRUPTED  # noqa: E402 - needs the packages asked for above
from truetune.errors import DataError, SpecError, UsageError  # noqa: E402 - needs the packages asked for above
from truetune.settings.run_spec import Encoding, RunSpec, Watch  # noqa: E402 - needs the packages asked for above
from truetune.settings.training_settings import Lora, Training  # noqa: E402 - needs the packages asked for above
from truetune.training import preference_trainers  # noqa: E402 - needs the packages asked for above
from truetune.training.preference_rows import (  # noqa: E402 - needs the packages asked for above
    PreferenceRows,
    choose_kl_answer_rows,
    load_preference_data,
)
from truetune.training.preference_trainers import ORPORows, make_preference_trainer  # noqa: E402 - needs the packages asked for above
from truetune.training.prepare_model import prepare_model  # noqa: E402 - needs the packages asked for above
from truetune.training.run_training import train_run  # noqa: E402 - needs the packages asked for above
from truetune.training.training_recipe import make_recipe  # noqa: E402 - needs the packages asked for above

Row = dict[str, Any]
METHODS = ("dpo", "orpo", "kto")
BEHIND = "\n"
"""What the demo's template writes behind the stop token"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    made = model(attention_dropout=0.3)
    made.generation_config.eos_token_id = tokenizer().convert_tokens_to_ids("<|im_end|>")
    made.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUETUNE_CACHE", str(tmp_path / "cache"))


def turn(role: str, content: str) -> Row:
    return {"role": role, "content": content}


def pairs(count: int = 40) -> list[Row]:
    """All prompts and answers differ; rejected answers are as long as chosen ones."""
    return [
        {
            "prompt": [turn("user", f"How many {FRUITS[i % 12]} are in box {i}?")],
            "chosen": [turn("assistant", f"There are {i + 3} {FRUITS[i % 12]} in it.")],
            "rejected": [turn("assistant", f"No idea, {FRUITS[i % 12]} of box {i}.")],
        }
        for i in range(count)
    ]


def verdicts(count: int = 40) -> list[Row]:
    return [
        {
            "prompt": row["prompt"],
            "completion": row["chosen" if i % 3 else "rejected"],
            "label": bool(i % 3),
        }
        for i, row in enumerate(pairs(count))
    ]


def spec_of(base: Path, folder: Path, rows: list[Row], method: str, **training: Any) -> RunSpec:
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings: dict[str, Any] = {
        "method": method, "output_dir": str(folder / "out"), "learning_rate": 3e-3, "max_steps": 8, "logging_steps": 1,
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "eval_strategy": "no", "val_size": 0,
        "save_strategy": "no", "dtype": "float32",
    }  # fmt: skip
    return RunSpec(
        data=(str(data),),
        tokenizer=str(base),
        max_length=128,
        training=Training(**(settings | training)),
        trainer={"report_to": "none", "disable_tqdm": True},
        rehearsal=False,
        watch=Watch(prompts=0),
    )


def trainer_of(spec: RunSpec) -> Any:
    made = make_recipe(spec, rows=None, gpu=False, bf16=False)
    return make_preference_trainer(
        made, prepare_model(made.spec, made.training), load_preference_data(made.spec)
    )


def rows_of(spec: RunSpec) -> PreferenceRows:
    rows = load_preference_data(make_recipe(spec, rows=None, gpu=False, bf16=False).spec).train
    assert isinstance(rows, PreferenceRows)
    return rows


def ids_of_trl(method: str, rows: list[Row], folder: Path) -> list[Row]:
    kinds = {
        "dpo": (trl.DPOConfig, trl.DPOTrainer),
        "kto": (trl.KTOConfig, trl.KTOTrainer),
        "orpo": (preference_trainers.ORPOConfig, preference_trainers.ORPOTrainer),
    }
    config, kind = kinds[method]
    args = config(
        str(folder),
        bf16=False,
        report_to=[],
        per_device_train_batch_size=2,
        remove_unused_columns=False,
    )
    models = [model()] if method == "orpo" else [model(), model()]
    return list(
        kind(
            *models, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer()
        ).train_dataset
    )


def test_pairs_have_the_ids_of_trl(base: Path, tmp_path: Path) -> None:
    mine = rows_of(spec_of(base, tmp_path, pairs(6), "dpo")).as_dataset()
    behind = tokenizer()(BEHIND)["input_ids"]
    for own, row in zip(mine, ids_of_trl("dpo", pairs(6), tmp_path), strict=True):
        assert own["prompt_ids"] == row["prompt_ids"]
        assert own["chosen_ids"] + behind == row["chosen_ids"]
        assert own["rejected_ids"] + behind == row["rejected_ids"]


def test_pairs_of_orpo_have_the_ids_of_trl_without_its_second_stop(
    base: Path, tmp_path: Path
) -> None:
    mine = ORPORows(rows_of(spec_of(base, tmp_path, pairs(6), "orpo")))
    behind = [*tokenizer()(BEHIND)["input_ids"], tokenizer().eos_token_id]
    for number, row in enumerate(ids_of_trl("orpo", pairs(6), tmp_path)):
        for side in ("chosen", "rejected"):
            assert mine[number][f"{side}_input_ids"] + behind == row[f"{side}_input_ids"]
            assert mine[number][f"{side}_labels"] + behind == row[f"{side}_labels"]


def test_verdicts_have_the_ids_of_trl(base: Path, tmp_path: Path) -> None:
    mine = rows_of(spec_of(base, tmp_path, verdicts(6), "kto")).as_dataset()
    behind = tokenizer()(BEHIND)["input_ids"]
    found = sorted(
        (row["prompt_ids"], row["completion_ids"] + behind, row["label"]) for row in mine
    )
    wanted = [
        (r["prompt_ids"], r["completion_ids"], r["label"])
        for r in ids_of_trl("kto", verdicts(6), tmp_path)
    ]
    assert found == sorted(wanted)


@pytest.mark.parametrize("method", METHODS)
def test_rows_one_by_one_are_those_of_the_data_set(method: str, base: Path, tmp_path: Path) -> None:
    rows = rows_of(spec_of(base, tmp_path, pairs(), method))
    assert [rows[i] for i in range(len(rows))] == rows.as_dataset().to_list()
    assert len(rows) == (80 if method == "kto" else 40)


def test_held_out_rows_are_not_trained_on(base: Path, tmp_path: Path) -> None:
    for method in METHODS:
        data = load_preference_data(spec_of(base, tmp_path, pairs(), method, val_size=10))
        assert data.held_out is not None
        apart = {tuple(data.held_out[i]["prompt_ids"]) for i in range(len(data.held_out))}
        assert len(apart) == 10
        assert apart.isdisjoint(tuple(data.train[i]["prompt_ids"]) for i in range(len(data.train)))


def test_rows_that_tell_nothing_are_left_out_and_counted(base: Path, tmp_path: Path) -> None:
    first, second, third, *others = pairs(12)
    first["rejected"] = first["chosen"]
    second["chosen"] = [*second["chosen"], turn("user", "Sure?"), turn("assistant", "Yes.")]
    third["rejected"] = [turn("assistant", "well, " * 200)]
    data = load_preference_data(spec_of(base, tmp_path, [first, second, third, *others], "dpo"))
    assert len(data.train) == 9
    assert data.encoded.counts["dropped"] == 3
    dropped = (data.encoded.folder / "dropped.jsonl").read_text(encoding="utf-8").splitlines()
    reasons = [json.loads(line)["reason"] for line in dropped]
    assert reasons == [ANSWERS_EQUAL, INTERRUPTED, "it is longer than max_length (128)"]


def test_a_pair_is_never_cut(base: Path, tmp_path: Path) -> None:
    spec = spec_of(base, tmp_path, pairs(4), "dpo")
    with pytest.raises(SpecError, match="cut the two sides of a pair differently"):
        load_preference_data(
            spec.model_copy(update={"encode": Encoding(overflow="truncate-prompt")})
        )


def test_rows_of_the_wrong_kind_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="compares two answers"):
        load_preference_data(spec_of(base, tmp_path, [*pairs(2), *verdicts(2)], "dpo"))
    with pytest.raises(DataError, match="neither a pair of answers nor"):
        load_preference_data(
            spec_of(
                base,
                tmp_path,
                [{"messages": [*pairs(1)[0]["prompt"], *pairs(1)[0]["chosen"]]}],
                "kto",
            )
        )


def test_encoded_pairs_are_found_again(base: Path, tmp_path: Path) -> None:
    spec = spec_of(base, tmp_path, pairs(), "dpo").model_copy(
        update={"encode": Encoding(preferences=True)}
    )
    assert not encode(spec).reused
    again = encode(spec)
    assert again.reused
    assert again.counts["documents"] == 80
    assert again.dataset()["label"][:4] == [True, False, True, False]


def test_rows_of_a_batch_answer_different_questions(base: Path, tmp_path: Path) -> None:
    rows = pairs(64)
    for row in rows[:20]:
        row["prompt"] = rows[0]["prompt"]
    for row in rows[40:50]:
        row["rejected"] = rows[40]["rejected"]
    found = rows_of(spec_of(base, tmp_path, rows, "kto"))
    for name in ("prompt_ids", "completion_ids"):
        values = [tuple(found[i][name]) for i in range(len(found))]
        for start in range(0, 48, 4):
            assert len(set(values[start : start + 4])) == 4


def test_wanted_and_unwanted_answers_are_spread_evenly(base: Path, tmp_path: Path) -> None:
    found = rows_of(spec_of(base, tmp_path, verdicts(96), "kto"))
    labels = [found[i]["label"] for i in range(96)]
    assert {sum(labels[start : start + 12]) for start in range(0, 96, 12)} <= {7, 8, 9}
    assert labels != sorted(labels)


@pytest.mark.parametrize(("count", "batch"), [(8, 4), (9, 4), (7, 4), (2, 4), (40, 2)])
def test_a_neighbour_is_another_row_of_the_batch(count: int, batch: int) -> None:
    found = choose_kl_answer_rows(np.full(count, 5), np.full(count, 5), batch, 10)
    places = np.arange(count)
    assert (found != places).all()
    assert (
        (found // batch == places // batch) | (count % batch == 1) & (places == count - 1)
    ).all()


def test_a_neighbour_has_room_behind_the_prompt() -> None:
    prompts, answers = np.array([2, 8, 2, 2]), np.array([7, 1, 2, 8])
    assert choose_kl_answer_rows(prompts, answers, 4, 10).tolist() == [3, 2, 1, 2]
    assert choose_kl_answer_rows(prompts, answers, 4, 9).tolist() == [2, 0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, Lora()], ids=["full", "lora"])
@pytest.mark.parametrize("method", METHODS)
def test_margins_grow(method: str, lora: Lora | None, base: Path, tmp_path: Path) -> None:
    trainer = trainer_of(spec_of(base, tmp_path, pairs(), method, lora=lora, max_steps=12))
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    margins = [entry["rewards/margins"] for entry in steps if "rewards/margins" in entry]
    if method != "orpo":
        assert steps[0]["loss"] == pytest.approx(math.log(2) if method == "dpo" else 0.5, abs=1e-4)
        assert margins[0] == pytest.approx(0, abs=1e-4)
    assert steps[-1]["loss"] < 0.99 * steps[0]["loss"]
    assert margins[-1] > margins[0] + 0.01
    prompt = torch.tensor(
        [load_preference_data(spec_of(base, tmp_path, pairs(), method)).train[0]["prompt_ids"]]
    )
    assert (
        trainer.model.generate(input_ids=prompt, max_new_tokens=3, do_sample=False).shape[1]
        > prompt.shape[1]
    )


def test_orpo_learns_answers_and_no_prompts(base: Path, tmp_path: Path) -> None:
    trainer = trainer_of(spec_of(base, tmp_path, pairs(4), "orpo"))
    trainer.model.eval()
    batch = next(iter(trainer.get_train_dataloader()))
    means, losses = [], []
    for side in ("chosen", "rejected"):
        ids, labels = batch[f"{side}_input_ids"], batch[f"{side}_labels"]
        logits = trainer.model(
            input_ids=ids, attention_mask=batch[f"{side}_attention_mask"]
        ).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), labels[:, 1:], reduction="none"
        )
        counts = (labels[:, 1:] != -100).sum(1)
        means.append(-each.sum(1) / counts)
        losses.append(each.sum() / counts.sum())
    odds = [mean - torch.log1p(-mean.exp()) for mean in means]
    loss = losses[0] - 0.1 * torch.nn.functional.logsigmoid(odds[0] - odds[1]).mean()
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(loss.item(), abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_batches_of_other_ids_are_refused(method: str, base: Path, tmp_path: Path) -> None:
    spec = spec_of(base, tmp_path, pairs(), method)
    trainer, rows = trainer_of(spec), rows_of(spec)
    inner = trainer.data_collator

    def begins_late(batch: list[Row]) -> Row:
        made = dict(inner(batch))
        name = "chosen_labels" if method == "orpo" else "completion_mask"
        place = (made[name] > 0).int().argmax(1)[0]
        made[name][0, place] = -100 if method == "orpo" else 0
        return made

    preference_trainers._check_first_batches_match_rows(trainer, rows)
    trainer.data_collator = begins_late
    with pytest.raises(UsageError, match="labels of line 0"):
        preference_trainers._check_first_batches_match_rows(trainer, rows)


def test_another_reference_than_the_policy_is_refused(base: Path, tmp_path: Path) -> None:
    trainer = trainer_of(spec_of(base, tmp_path, pairs(), "dpo"))
    with torch.no_grad():
        trainer.ref_model.lm_head.weight.mul_(1.5)
    with pytest.raises(UsageError, match="policy and reference differ by"):
        preference_trainers._check_reference_equals_policy(trainer)
    with pytest.raises(UsageError, match="init_lora_weights"):
        trainer_of(
            spec_of(base, tmp_path, pairs(), "kto", lora=Lora(r=4, init_lora_weights="pissa"))
        )


def test_dropout_that_stays_on_is_seen(base: Path, tmp_path: Path) -> None:
    trainer = trainer_of(spec_of(base, tmp_path, pairs(), "dpo"))
    for layer in trainer.model.model.layers:
        assert layer.self_attn.attention_dropout == 0.0
        layer.self_attn.attention_dropout = 0.3
    with pytest.raises(UsageError, match="Dropout that stays on"):
        preference_trainers._check_reference_equals_policy(trainer)


def test_single_rows_of_the_embedding_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TRL takes the head's weights as they were"):
        trainer_of(spec_of(base, tmp_path, pairs(), "dpo", lora=Lora(trainable_token_indices=(5,))))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_audited_clean(method: str, base: Path, tmp_path: Path) -> None:
    done = train_run(
        spec_of(base, tmp_path, pairs(), method, lora=Lora(), max_steps=2, learning_rate=1e-5)
    )
    assert done.steps == 2
    assert not [finding for finding in done.findings if finding.severity == "error"]

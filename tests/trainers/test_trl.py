"""TRL's SFTTrainer takes encoded rows as they are: the blocks of docs/trainers.md, run, and its claims."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.parts import folder
from tests.trainers import FAMILY, STOP, Row, blocks, documents_of, rows_of, same, tiny_model, train
from truetune.collate import PaddingCollator, PaddingFreeCollator

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
BLOCKS = blocks("TRL's SFTTrainer")


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_the_labels_that_reach_the_loss_are_the_files(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = name.partition("-")[0]
    steps = train(BLOCKS[name], trl.SFTTrainer, kind, monkeypatch)
    assert len(steps) == 2
    assert Counter(d for step in steps for d in step.documents) == Counter(
        documents_of(rows_of(here / kind))
    )
    for step in steps:
        assert step.loss == pytest.approx(step.one_by_one, abs=1e-4)


def trainer(rows: list[Row], where: Path, collator: Any = None, **settings: Any) -> Any:
    return trl.SFTTrainer(
        tiny_model(),
        trl.SFTConfig(str(where), bf16=False, **settings),
        train_dataset=datasets.Dataset.from_list(rows),
        data_collator=collator,
        processing_class=transformers.AutoTokenizer.from_pretrained(folder(FAMILY)),
    )


def test_its_preparation_cuts_at_1024(rows: list[Row], tmp_path: Path) -> None:
    ids, labels = rows[0]["input_ids"], rows[0]["labels"]
    first = next(i for i, label in enumerate(labels) if label != -100)
    prompt, answer = ids[:first], ids[first : ids.index(STOP, first)]
    whole = [
        {
            "input_ids": prompt + answer * 400 + [STOP],
            "labels": [-100] * first + answer * 400 + [STOP],
        },
        {"input_ids": prompt * 100 + answer, "labels": [-100] * first * 100 + answer},
    ]
    cut = trainer(whole, tmp_path).train_dataset
    assert list(cut) == [{name: values[:1024] for name, values in whole[0].items()}]
    assert STOP not in cut[0]["labels"]
    for settings in ({"max_length": None}, {"dataset_kwargs": {"skip_prepare_dataset": True}}):
        assert list(trainer(whole, tmp_path, **settings).train_dataset) == whole


def test_which_settings_change_nothing_and_which_are_refused(
    rows: list[Row], tmp_path: Path
) -> None:
    assert list(trainer(rows, tmp_path, completion_only_loss=True).train_dataset) == rows
    with pytest.raises(ValueError, match="not conversational"):
        trainer(rows, tmp_path, assistant_only_loss=True)
    with pytest.raises(ValueError, match="max_length"):
        trainer(rows, tmp_path, padding_free=True)
    with pytest.raises(ValueError, match="custom data collator"):
        trainer(rows, tmp_path, PaddingCollator(STOP), padding_free=True, max_length=None)


def test_its_own_collator_and_ours_agree(rows: list[Row], packs: list[Row]) -> None:
    theirs = trl.trainer.sft_trainer.DataCollatorForLanguageModeling
    same(
        theirs(STOP, pad_to_multiple_of=8)(rows), PaddingCollator(STOP, pad_to_multiple_of=8)(rows)
    )
    same(theirs(STOP, padding_free=True)(packs), PaddingFreeCollator(varlen=True)(packs))


def first_batch(made: Any) -> dict[str, Any]:
    batch: dict[str, Any] = next(iter(made.get_train_dataloader()))
    return batch


def test_packed_rows_without_padding_free_are_one_document(
    packs: list[Row], tmp_path: Path
) -> None:
    batch = first_batch(trainer(packs, tmp_path))
    assert "attention_mask" in batch
    assert "position_ids" not in batch


def test_packing_packs_packed_rows_again(packs: list[Row], tmp_path: Path) -> None:
    again = trainer(packs, tmp_path, packing=True).train_dataset
    lengths = sorted(length for row in again for length in row["seq_lengths"])
    assert lengths == sorted(len(pack["input_ids"]) for pack in packs)


def test_weights_are_dropped(weighted: list[Row], tmp_path: Path) -> None:
    assert "loss_weights" not in first_batch(trainer(weighted, tmp_path, PaddingCollator(STOP)))

"""transformers' Trainer takes encoded rows as they are: the blocks of docs/trainers.md, run, and its claims."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.parts import folder
from tests.trainers import FAMILY, STOP, Row, blocks, documents_of, rows_of, same, tiny_model, train
from truetune.collate import PaddingCollator, PaddingFreeCollator, weighted_loss
from truetune.errors import UsageError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
BLOCKS = blocks("transformers' Trainer")
COLLATORS = (PaddingCollator(STOP), PaddingCollator(STOP, "left"), PaddingFreeCollator(varlen=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_the_labels_that_reach_the_loss_are_the_files(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = name.partition("-")[0]
    steps = train(BLOCKS[name], transformers.Trainer, kind, monkeypatch)
    assert len(steps) == 2
    assert Counter(d for step in steps for d in step.documents) == Counter(
        documents_of(rows_of(here / kind))
    )
    for step in steps:
        assert step.loss == pytest.approx(step.one_by_one, abs=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("collator", COLLATORS, ids=["right", "left", "none"])
def test_documents_of_a_packed_row_do_not_see_each_other(
    attention: str, collator: Any, packs: list[Row]
) -> None:
    model = tiny_model(1000)
    model.set_attn_implementation(attention)
    packs = [pack | {"input_ids": [id % 1000 for id in pack["input_ids"]]} for pack in packs]
    batch = collator(packs)
    real = _real(
        batch, [len(pack["input_ids"]) for pack in packs], getattr(collator, "side", "right")
    )

    def distance(**changed: Any) -> float:
        given = {
            name: value
            for name, value in (batch | changed).items()
            if name != "labels" and value is not None
        }
        return (model(**given).logits[real] - alone).abs().max().item()

    with torch.no_grad():
        alone = torch.cat(
            [model(torch.tensor([document.ids])).logits[0] for document in documents_of(packs)]
        )
        assert distance() < 1e-4
        assert distance(position_ids=None) > 1
        assert distance(attention_mask=real.long()) > 1
        assert distance(use_cache=True) > 1


def _real(batch: dict[str, Any], lengths: list[int], side: str) -> Any:
    """(rows, tokens) where no padding stands."""
    rows, width = batch["input_ids"].shape
    ends = torch.tensor(lengths if rows > 1 else [width])[:, None]
    places = torch.arange(width)
    return (places.flip(0) if side == "left" else places) < ends


def trainer(model: Any, rows: list[Row], where: Path, **settings: Any) -> Any:
    args = transformers.TrainingArguments(
        str(where),
        max_steps=1,
        optim="sgd",
        learning_rate=1.0,
        max_grad_norm=0,
        save_strategy="no",
        **settings,
    )
    data = datasets.Dataset.from_list(rows)
    return transformers.Trainer(
        model, args, train_dataset=data, data_collator=PaddingCollator(STOP)
    )


@pytest.mark.slow
def test_weights_hold_with_gradient_accumulation(weighted: list[Row], tmp_path: Path) -> None:
    tuned = []
    for size, steps in ((8, 1), (2, 4)):
        model = tiny_model()
        model.loss_function = weighted_loss
        settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        trainer(model, weighted, tmp_path, remove_unused_columns=False, **settings).train()
        tuned.append(model.model.layers[0].mlp.up_proj.weight)
    torch.testing.assert_close(*tuned)
    assert not torch.allclose(tuned[0], tiny_model().model.layers[0].mlp.up_proj.weight)


def test_weights_that_do_not_arrive_are_an_error(weighted: list[Row], tmp_path: Path) -> None:
    model = tiny_model()
    model.loss_function = weighted_loss
    with pytest.raises(UsageError, match="remove_unused_columns=False"):
        trainer(model, weighted, tmp_path).train()


def test_what_other_collators_do(rows: list[Row], packs: list[Row]) -> None:
    rows, packs = _bare(rows), _bare(packs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder(FAMILY))
    assert tokenizer.pad_token_id == STOP

    anew = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)(rows[:1])["labels"]
    assert anew.tolist() == [[-100 if id == STOP else id for id in rows[0]["input_ids"]]]
    with pytest.raises(ValueError, match="same length"):
        transformers.DataCollatorWithPadding(tokenizer)(rows)

    for_pairs = transformers.DataCollatorForSeq2Seq(tokenizer, padding=True)
    same(for_pairs(rows), PaddingCollator.of(tokenizer)(rows))
    with pytest.raises(ValueError, match="same length"):
        for_pairs(packs)

    flat = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=True
    )
    same(flat(rows), PaddingFreeCollator(varlen=True)(rows))
    assert flat(packs[:1])["position_ids"].tolist() == [list(range(len(packs[0]["input_ids"])))]


def _bare(rows: list[Row]) -> list[Row]:
    """As the Trainer gives them to a collator: with the columns that the model's forward names."""
    return [
        {name: row[name] for name in ("input_ids", "labels", "position_ids") if name in row}
        for row in rows
    ]

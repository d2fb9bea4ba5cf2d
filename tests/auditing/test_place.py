"""Each token of a batch is placed as the encoder places it in the row's own rendering, whatever collator made it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
from trl import pack_dataset
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling as TrlCollator

from tests.auditing.placing import own, pad_of, padder, placed, probes_of, text_of
from truetune.auditing.audit import Sample
from truetune.render.rendering import Source

FAMILIES = (
    "qwen3",
    "llama3.1-instruct",
    "gemma3",
    "mistral-7b-v0.3",
    "phi3",
    "smollm2",
    "deepseek-r1",
)
ROWS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": "How far is the lighthouse, 👩‍👩‍👧?\n\n  Say it  in miles."},
            {"role": "assistant", "content": "Yes: 𝔘 miles, \"give\" or take <one>.\n```py\nprint(1)\n```"},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "user"},
            {"role": "assistant", "content": "Yes"},
            {"role": "user", "content": "Yes"},
            {"role": "assistant", "content": "Yes"},
        ]
    },
    {"messages": [{"role": "user", "content": "Ça va? 日本"}, {"role": "assistant", "content": " trimmed \n"}]},
]  # fmt: skip


def ids_of(family: str, rows: list[dict[str, Any]]) -> list[list[int]]:
    return [own(family, row, history="single").ids.tolist() for row in rows]


def check(family: str, sample: Sample, places: np.ndarray, row: dict[str, Any]) -> None:
    """One document against the encoder's own arrays."""
    view = own(family, row, history="single")
    assert sample.ids[places].tolist() == view.ids.tolist()[: len(places)]
    assert sample.source[places].tolist() == view.source.tolist()[: len(places)]
    assert sample.expected is not None
    assert sample.expected[places].tolist() == view.supervised.tolist()[: len(places)]
    assert sample.placed_by == "rendering"


def text(sample: Sample, document: int = 0) -> np.ndarray:
    return np.flatnonzero(sample.documents == document)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_on_either_side(family: str, side: str) -> None:
    rows = [{"input_ids": ids, "labels": ids} for ids in ids_of(family, ROWS)]
    collator = DataCollatorForSeq2Seq(padder(pad_of(family), side), pad_to_multiple_of=8)
    batch = dict(collator([{**row} for row in rows]))
    for prepared in (None, [rows]):
        samples = placed(family, [batch], ROWS, prepared=prepared)
        for sample, row, given in zip(samples, ROWS, rows, strict=True):
            assert (~sample.padding).sum() == len(given["input_ids"])
            check(family, sample, text(sample), row)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_lines_and_flat_ones(family: str) -> None:
    ids = ids_of(family, ROWS)
    packed = pack_dataset(
        Dataset.from_list([{"input_ids": i, "labels": i} for i in ids]), 4096, "bfd"
    )
    rows = [dict(row) for row in packed]
    flat = TrlCollator(pad_of(family), padding_free=True)
    for examples in (rows, [{"input_ids": i} for i in ids]):
        for hidden in (False, True):
            batch = flat(examples)
            if hidden:
                batch = {"input_ids": batch["input_ids"], "labels": batch["labels"]}
            (sample,) = placed(family, [batch], ROWS, prepared=[examples])
            assert set(sample.documents.tolist()) == {0, 1, 2}
            assert set(sample.separated_by) == (
                set() if hidden else {"position_ids", "cu_seq_lens_q", "seq_idx"}
            )
            for document in range(3):
                places = text(sample, document)
                row = next(
                    row
                    for row, i in zip(ROWS, ids, strict=True)
                    if i == sample.ids[places].tolist()
                )
                check(family, sample, places, row)


@pytest.mark.parametrize("family", FAMILIES)
def test_wrapped_packing_without_any_mark(family: str) -> None:
    ids = ids_of(family, ROWS)
    whole = [i for mine in ids for i in mine]
    cut = len(ids[0]) + 4
    lines = [whole[:cut], whole[cut : 2 * cut]]
    for line in (ids[0][2:-2], [*ids[0][9:], *ids[2][:9]]):
        (sample,) = placed(family, [{"input_ids": torch.tensor([line])}], ROWS)
        assert sample.placed_by == "rendering"
        assert Source.ASSISTANT in sample.source
        assert sample.documents.max() == (len(line) == len(ids[0]))
    for number, line in enumerate(lines):
        (sample,) = placed(
            family, [{"input_ids": torch.tensor([line]), "labels": torch.tensor([line])}], ROWS
        )
        expected = np.concatenate([own(family, row, history="single").supervised for row in ROWS])
        source = np.concatenate([own(family, row, history="single").source for row in ROWS])
        at = number * cut
        assert sample.expected is not None
        assert sample.expected.tolist() == expected[at : at + len(line)].tolist()
        assert sample.source.tolist() == source[at : at + len(line)].tolist()
        assert len(set(sample.documents.tolist())) > 1


@pytest.mark.parametrize("family", ["qwen3", "smollm2", "phi3"])
def test_the_stop_token_is_text_where_pad_is_stop(family: str) -> None:
    views = [own(family, row, history="single") for row in ROWS]
    rows = [
        {"input_ids": view.ids[: np.flatnonzero(view.supervised)[-1] + 1].tolist()}
        for view in views
    ]
    stop = rows[0]["input_ids"][-1]
    batch = dict(
        DataCollatorForLanguageModeling(padder(stop), mlm=False)([{**row} for row in rows])
    )
    by_id = {**batch, "attention_mask": (batch["input_ids"] != stop).long()}
    bare = {key: value for key, value in batch.items() if key != "attention_mask"}
    for made in (batch, by_id, bare):
        for prepared in (None, [rows]):
            for sample, row in zip(
                placed(family, [made], ROWS, pad=stop, prepared=prepared), rows, strict=True
            ):
                assert sample.ids[~sample.padding].tolist() == row["input_ids"]
                assert not sample.supervised[text(sample)[-1]]


def test_a_pad_is_no_stop_where_none_was_appended() -> None:
    stop = probes_of("qwen3").tokenizer.special["eos"].id
    rows = [{"input_ids": ids[:-2]} for ids in ids_of("qwen3", ROWS)]
    batch = dict(
        DataCollatorForLanguageModeling(padder(stop), mlm=False)([{**row} for row in rows])
    )
    by_id = {**batch, "attention_mask": (batch["input_ids"] != stop).long()}
    for made in (batch, by_id):
        for sample, row in zip(placed("qwen3", [made], ROWS, pad=stop), rows, strict=True):
            assert sample.ids[~sample.padding].tolist() == row["input_ids"]
            assert sample.source[text(sample)[-1]] == Source.ASSISTANT


@pytest.mark.parametrize("family", FAMILIES)
def test_cut_rows(family: str) -> None:
    (ids, *_), row = ids_of(family, ROWS), ROWS[0]
    for count in (len(ids) - 1, len(ids) // 2, len(ids) - 8):
        (sample,) = placed(family, [{"input_ids": torch.tensor([ids[:count]])}], [row])
        check(family, sample, text(sample), row)
    assert [sample.fields[i].path for i in sample.cut] == ["messages[1].content"]


PAIRS = [
    {
        "prompt": [{"role": "user", "content": f"How many are in box {i}?"}],
        "chosen": [{"role": "assistant", "content": f"There are {i + 3} in it."}],
        "rejected": [{"role": "assistant", "content": "I will not count them."}],
    }
    for i in range(3)
]


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_and_verdicts(family: str) -> None:
    prepared = []
    for pair in PAIRS:
        sides = {
            side: own(family, {"messages": pair["prompt"] + pair[side]})
            for side in ("chosen", "rejected")
        }
        first = int(np.flatnonzero(sides["chosen"].supervised)[0])
        prepared.append(
            {
                "prompt_ids": sides["chosen"].ids.tolist()[:first],
                **{f"{side}_ids": view.ids.tolist()[first:] for side, view in sides.items()},
            }
        )
    batch = DataCollatorForPreference(pad_token_id=0)(prepared)
    samples = placed(family, [batch], PAIRS, prepared=[prepared], kind="dpo")
    assert [sample.side for sample in samples] == ["chosen"] * 3 + ["rejected"] * 3
    for sample, pair in zip(samples, PAIRS * 2, strict=True):
        check(family, sample, text(sample), {"messages": pair["prompt"] + pair[sample.side]})
        assert {f.path for f in sample.fields} == {"prompt[0].content", f"{sample.side}[0].content"}
        assert sample.supervised[sample.source == Source.ASSISTANT].all()
        assert not sample.supervised[sample.padding].any()

    verdicts = [
        {
            "prompt_ids": row["prompt_ids"],
            "completion_ids": row["chosen_ids"],
            "KL_completion_ids": prepared[i - 1]["chosen_ids"],
            "label": True,
        }
        for i, row in enumerate(prepared)
    ]
    given = [
        {"prompt": pair["prompt"], "completion": pair["chosen"], "label": True} for pair in PAIRS
    ]
    batch = DataCollatorForUnpairedPreference(pad_token_id=0)(verdicts)
    samples = placed(family, [batch], given, prepared=[verdicts], kind="kto")
    assert [sample.side for sample in samples] == [""] * 3 + ["kl"] * 3
    for sample, pair in zip(samples, PAIRS * 2, strict=True):
        if not sample.side:
            check(family, sample, text(sample), {"messages": pair["prompt"] + pair["chosen"]})
        assert sample.supervised[sample.source == Source.ASSISTANT].all()
        assert (sample.source == Source.ASSISTANT).any()
    older = {
        "chosen_input_ids": batch["input_ids"],
        "chosen_labels": batch["input_ids"],
        "rejected_input_ids": batch["KL_input_ids"],
        "rejected_labels": batch["KL_input_ids"],
    }
    samples = placed(family, [older], given, kind="orpo")
    assert [(sample.side, sample.line) for sample in samples] == [
        (side, i) for side in ("chosen", "rejected") for i in range(3)
    ]
    assert all(sample.supervised.all() for sample in samples)


def test_numbered_masks_and_square_ones() -> None:
    ids = ids_of("qwen3", ROWS)
    flat, lengths = torch.tensor([[i for mine in ids for i in mine]]), [len(mine) for mine in ids]
    number = torch.repeat_interleave(torch.arange(1, 4), torch.tensor(lengths))[None]
    padded = torch.nn.functional.pad(flat, (0, 5), value=pad_of("qwen3"))
    numbered = torch.nn.functional.pad(number, (0, 5))
    same = (numbered[:, :, None] == numbered[:, None, :]) & (numbered != 0)[:, None, :]
    causal = torch.ones(same.shape[1:], dtype=torch.bool).tril()
    square = torch.where(same & causal, 0.0, torch.finfo(torch.float16).min)[:, None]
    for mask in (numbered, square, same[:, None] & causal):
        (sample,) = placed("qwen3", [{"input_ids": padded, "attention_mask": mask}], ROWS)
        assert np.bincount(sample.documents[~sample.padding]).tolist() == lengths
        assert sample.padding.sum() == 5
        assert sample.separated_by == ("attention_mask",)


def test_an_attention_mask_that_hides_the_prompt_is_no_padding() -> None:
    view = own("qwen3", ROWS[0])
    batch = {
        "input_ids": torch.tensor([view.ids.tolist()]),
        "attention_mask": torch.tensor([view.supervised.tolist()]),
    }
    (sample,) = placed("qwen3", [batch], ROWS)
    assert not sample.padding.any()
    assert sample.attended.tolist() == view.supervised.tolist()


def test_text_of_answers_is_named() -> None:
    ids, *_ = ids_of("qwen3", ROWS)
    (sample,) = placed("qwen3", [{"input_ids": torch.tensor([ids])}], ROWS)
    owner = next(i for i, field in enumerate(sample.fields) if field.path == "messages[1].content")
    assert text_of(sample, sample.field == owner) == ROWS[0]["messages"][1]["content"]


def test_tokens_of_pictures_are_no_template_text() -> None:
    ids, *_ = ids_of("qwen3", ROWS)
    picture = probes_of("qwen3").tokenizer.backend.token_to_id("<|image_pad|>")
    with_picture = [*ids[:3], *[picture] * 5, *ids[3:]]
    batch = {"input_ids": torch.tensor([with_picture]), "labels": torch.tensor([with_picture])}
    (known,) = placed("qwen3", [batch], ROWS, config={"image_token_id": picture})
    assert (known.source == Source.IMAGE).tolist() == [id == picture for id in with_picture]
    (unknown,) = placed("qwen3", [batch], ROWS)
    assert Source.IMAGE not in unknown.source

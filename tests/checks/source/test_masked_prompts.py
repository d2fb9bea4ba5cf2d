"""Labels of padded rows in which the prompt is masked by its position, and the pads are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

TRAINED = "Trainer(model=model, train_dataset=ds.map(encode)).train()\n"


def _rows(body: str, *, more: str = "padding='max_length', max_length=64") -> str:
    lines = [
        f"enc = tok(row['text'], {more})",
        "n = len(tok(row['prompt'])['input_ids'])",
        *body.splitlines(),
    ]
    return "def encode(row):\n" + "".join(f"    {line}\n" for line in lines) + TRAINED


@pytest.mark.parametrize(
    "body",
    [
        "labels = enc['input_ids'].clone()\nlabels[:, :n] = -100\nenc['labels'] = labels\nreturn enc",
        "labels = enc.input_ids.clone()\nlabels[0, :n] = -100\nreturn {**enc, 'labels': labels[0]}",
        "labels = list(enc['input_ids'])\nlabels[:n] = [-100] * n\nlabels[:n - 1] = -100\n"
        "return dict(enc, labels=labels)",
        "enc['labels'] = [-100] * n + enc['input_ids'][n:]\nreturn enc",
        "ids = enc['input_ids']\nreturn {**enc, 'labels': n * [-100] + ids[n:]}",
        "labels = enc['input_ids'].copy()\nfor i in range(n):\n    labels[i] = -100\n"
        "enc['labels'] = labels\nreturn enc",
        "labels = []\nfor i in range(9):\n    labels.append([-100] * n + enc['input_ids'][i][n:].tolist())\n"
        "enc['labels'] = labels\nreturn enc",
        "enc['labels'] = [[-100] * k + ids[k:] for ids, k in zip(enc['input_ids'], lengths)]\nreturn enc",
        "labels = []\nfor i, ids in enumerate(enc['input_ids']):\n    labels.append([-100] * n + ids[n:])\n"
        "enc['labels'] = labels\nreturn enc",
        "IGNORE = -100\nlabels = enc['input_ids'].clone()\nlabels[:, 0:n] = IGNORE\nenc['labels'] = labels.squeeze(0)\n"
        "return enc",
        "other = tok(row['prompt'], padding='max_length')\nlabels = enc['input_ids'].clone()\n"
        "labels[:, :other['attention_mask'].sum()] = -100\nenc['labels'] = labels\nreturn enc",
    ],
)  # fmt: skip
def test_a_prompt_masked_by_position_leaves_the_pads(body: str, tmp_path: Path) -> None:
    assert codes(_rows(body), tmp_path, "SRC015") == ["SRC015e"]


@pytest.mark.parametrize(
    "body",
    [
        "labels = enc['input_ids'].clone()\nlabels[:, :n] = -100\nlabels[enc['attention_mask'] == 0] = -100\n"
        "enc['labels'] = labels\nreturn enc",
        "labels = enc['input_ids'].clone()\nlabels[:, :n] = -100\nlabels[:, real:] = -100\n"
        "enc['labels'] = labels\nreturn enc",
        "enc['labels'] = [-100] * n + enc['input_ids'][n:real] + [-100] * (64 - real)\nreturn enc",
        "labels = enc['input_ids'].clone()\nlabels[:, :n] = -100\n"
        "labels = labels.masked_fill(enc['attention_mask'] == 0, -100)\nenc['labels'] = labels\nreturn enc",
        "labels = enc['input_ids'].clone()\nlabels[:, :-n] = -100\nenc['labels'] = labels\nreturn enc",
        "labels = enc['input_ids'].clone()\nlabels[:, :n_pads + n] = -100\nenc['labels'] = labels\nreturn enc",
        "labels = enc['input_ids'].clone()\nlabels[:, :enc['input_ids'].shape[1] - n] = -100\nenc['labels'] = labels\n"
        "return enc",
        "tok.padding_side = 'left'\nlabels = enc['input_ids'].clone()\nlabels[:, :n] = -100\nenc['labels'] = labels\n"
        "return enc",
        "labels = list(enc['input_ids'])\nfor i in range(64):\n    if i < n or not enc['attention_mask'][i]:\n"
        "        labels[i] = -100\nenc['labels'] = labels\nreturn enc",
        "labels = [-100 if not m else t for t, m in zip(enc['input_ids'], enc['attention_mask'])]\n"
        "labels[:n] = [-100] * n\nenc['labels'] = labels\nreturn enc",
    ],
)  # fmt: skip
def test_pads_that_may_be_masked_are_not_told(body: str, tmp_path: Path) -> None:
    assert codes(_rows(body), tmp_path, "SRC015") == []


@pytest.mark.parametrize(
    "body",
    [
        (
            "labels = enc['input_ids'].clone()\nfor one in labels:\n    one[real:] ="
            " LabelSmoother.ignore_index\nreturn dict(enc, labels=labels)"
        ),
        (
            "labels = enc['input_ids'].clone()\nlabels[:, real:] = constants.IGNORED\nreturn"
            " dict(enc, labels=labels)"
        ),
        (
            "labels = enc['input_ids'].clone()\nmask_pads(labels, row)\nreturn dict(enc,"
            " labels=labels)"
        ),
    ],
)
def test_labels_that_are_written_into_are_not_told(body: str, tmp_path: Path) -> None:
    helper = "def mask_pads(labels, row):\n    labels[:, len(row):] = constants.IGNORED\n"
    assert codes(helper + _rows(body), tmp_path, "SRC015") == []


def test_rows_without_pads_have_none_to_mask(tmp_path: Path) -> None:
    body = (
        "labels = enc['input_ids'].clone()\nlabels[:, :n] = -100\nenc['labels'] ="
        " labels\nreturn enc"
    )
    assert codes(_rows(body, more="truncation=True"), tmp_path, "SRC015") == []


def test_a_collator_may_mask_the_pads_of_rows_that_mask_the_prompt(tmp_path: Path) -> None:
    body = (
        "labels = enc['input_ids'].clone()\nlabels[:, :n] = -100\nenc['labels'] ="
        " labels\nreturn enc"
    )
    collator = (
        "def collate(rows):\n    batch = stack(rows)\n    batch['labels'][batch['attention_mask']"
        " == 0] = -100\n"
    )
    assert codes(collator + _rows(body), tmp_path, "SRC015") == []

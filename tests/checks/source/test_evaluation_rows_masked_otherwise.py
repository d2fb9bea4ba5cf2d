"""Evaluation rows that another function labels (SRC370), and settings that say so (CFG160)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes
from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

MASKED = (
    "def masked(r):\n    p, c = tok(r['p'])['input_ids'], tok(r['c'])['input_ids']\n"
    "    return {'input_ids': p + c, 'labels': [-100] * len(p) + c}\n"
)
WHOLE = (
    "def whole(r):\n    ids = tok(r['p'] + r['c'])['input_ids']\n"
    "    return {'input_ids': ids, 'labels': list(ids)}\n"
)
BOTH = (
    "from transformers import Trainer\nfrom torch.utils.data import DataLoader\n" + MASKED + WHOLE
)
DIFFERENT = {
    "trainer": "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(whole))\n",
    "through names": "train = a.map(masked).shuffle(seed=0)\nval = b.map(whole, remove_columns=['p'])\n"
    "Trainer(model=m, train_dataset=train, eval_dataset=val)\n",
    "the other way": "Trainer(model=m, train_dataset=a.map(whole), eval_dataset=b.map(masked))\n",
    "loaders": "train_loader = DataLoader(a.map(masked), 8)\nval_loader = DataLoader(b.map(whole), 8)\n",
    "a copy of the field": "def copied(r):\n    x = tok(r['t'])\n"
    "    x['labels'] = x['input_ids'].copy()\n    return x\n"
    "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(copied))\n",
    "a helper": "def mask(ids, n):\n    return [-100] * n + ids[n:]\n"
    "def outer(r):\n    ids = tok(r['t'])['input_ids']\n    return {'input_ids': ids, 'labels': mask(ids, 3)}\n"
    "Trainer(model=m, train_dataset=a.map(outer), eval_dataset=b.map(whole))\n",
}
ALIKE = {
    "one function": "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(masked))\n",
    "both whole": "Trainer(model=m, train_dataset=a.map(whole), eval_dataset=b.map(whole))\n",
    "no labels": "def ids(r):\n    return tok(r['t'])\n"
    "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(ids))\n",
    "a collator masks": "from trl import DataCollatorForCompletionOnlyLM\n"
    "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(whole),"
    " data_collator=DataCollatorForCompletionOnlyLM('x', tokenizer=tok))\n",
    "targets of a decoder": "def seq(r):\n    x = tok(r['s'])\n"
    "    x['labels'] = tok(text_target=r['t'])['input_ids']\n    return x\n"
    "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(seq))\n",
    "a mask of another name": "def other(r):\n    ids = tok(r['t'])['input_ids']\n"
    "    return {'input_ids': ids, 'labels': apply_mask(list(ids))}\n"
    "Trainer(model=m, train_dataset=a.map(masked), eval_dataset=b.map(other))\n",
    "an evaluation of answers": "Trainer(model=m, train_dataset=a.map(masked))\n",
}


@pytest.mark.parametrize("text", DIFFERENT.values(), ids=DIFFERENT)
def test_rows_that_are_labelled_in_two_ways(text: str, tmp_path: Path) -> None:
    assert codes(BOTH + text, tmp_path, "SRC370") == ["SRC370w"]


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_rows_that_are_labelled_in_one_way(text: str, tmp_path: Path) -> None:
    assert codes(BOTH + text, tmp_path, "SRC370") == []


RECIPE = """
model: {{_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj, v_proj]}}
tokenizer: {{_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 2048}}
dataset: {{_component_: torchtune.datasets.chat_dataset, source: json, data_files: a.json{train}}}
dataset_val: {{_component_: torchtune.datasets.chat_dataset, source: json, data_files: b.json{held}}}
batch_size: 2
epochs: 1
"""
AXOLOTL = """
base_model: some/model
datasets: [{{path: a.jsonl, type: {train}}}]
test_datasets: [{{path: b.jsonl, type: {held}, split: train}}]
sequence_len: 2048
micro_batch_size: 1
num_epochs: 1
learning_rate: 0.0002
{more}
"""


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (RECIPE.format(train=", train_on_input: false", held=", train_on_input: true"), 1),
        (RECIPE.format(train=", train_on_input: true", held=", train_on_input: false"), 1),
        (RECIPE.format(train=", train_on_input: true", held=", train_on_input: true"), 0),
        (RECIPE.format(train="", held=", train_on_input: true"), 0),
        (RECIPE.format(train="", held=""), 0),
        (AXOLOTL.format(train="chat_template", held="completion", more=""), 1),
        (AXOLOTL.format(train="chat_template", held="chat_template", more=""), 0),
        (AXOLOTL.format(train="completion", held="completion", more=""), 0),
        (AXOLOTL.format(train="chat_template", held="completion", more="train_on_inputs: true"), 0),
    ],
)
def test_settings_that_label_in_two_ways(settings: str, found: int, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(settings, encoding="utf-8")
    findings = check_paths([str(path)], RunSpec()).findings
    own = [one.severity for one in findings if one.code == "CFG160"]
    assert own == ["warning"] * found

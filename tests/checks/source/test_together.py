"""Findings of several files that are given together: the cause stands in one, and what it spoils in another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.source.test_program import written
from truetune.checks.lint import lint

TOKENIZER = "from transformers import AutoTokenizer\n"
LOAD = (
    TOKENIZER
    + "def load():\n    tok = AutoTokenizer.from_pretrained('x/y')\n    {}\n    return tok\n"
)
PAD_IS_EOS = LOAD.format("tok.pad_token = tok.eos_token")
COLLATOR = "from transformers import DataCollatorForLanguageModeling\n"
TRAIN = (
    COLLATOR
    + "from load import load\ntok = load()\nDataCollatorForLanguageModeling(tok, mlm=False)\n"
)
PREPARE = "def prepare(tok):\n    tok.pad_token = tok.eos_token\n    return tok\n"


def found(folder: Path, files: Mapping[str, str], *select: str) -> list[list[str]]:
    """The rule of each finding with the files of its cases."""
    written(folder, files)
    findings = lint([folder], select=select).findings
    return [[one.rule, *(Path(case.file or "").name for case in one.cases)] for one in findings]


PAD = "pad-equals-eos-lm-collator"
DATACLASS_COLLATOR = """
import torch
from dataclasses import dataclass

@dataclass
class Collate:
    tok: object
    limit: int = 512

    def __call__(self, rows):
        ids = self.tok(rows, padding=True, max_length=self.limit, return_tensors="pt").input_ids
        return {"labels": torch.where(ids == self.tok.pad_token_id, -100, ids)}
"""


@pytest.mark.parametrize(
    ("files", "places"),
    [
        ({"load.py": PAD_IS_EOS, "train.py": TRAIN}, ["load.py", "train.py"]),
        ({"train.py": COLLATOR + TOKENIZER + "from helper import prepare\n"
          "tok = prepare(AutoTokenizer.from_pretrained('x/y'))\nDataCollatorForLanguageModeling(tok, mlm=False)\n",
          "helper.py": PREPARE}, ["helper.py", "train.py"]),
        ({"train.py": COLLATOR + TOKENIZER + "import lib.helper as h\ntok = AutoTokenizer.from_pretrained('x/y')\n"
          "h.prepare(tok)\nDataCollatorForLanguageModeling(tok, mlm=False)\n",
          "lib/__init__.py": "", "lib/helper.py": PREPARE}, ["helper.py", "train.py"]),
        ({"load.py": PAD_IS_EOS, "coll.py": COLLATOR + "def make(t):\n"
          "    return DataCollatorForLanguageModeling(tokenizer=t, mlm=False)\n",
          "train.py": "import load, coll\ncoll.make(load.load())\n"}, ["load.py", "coll.py"]),
        ({"load.py": PAD_IS_EOS, "train.py": "from load import load\ntok = load()\n"
          "labels[labels == tok.pad_token_id] = -100\n"}, ["load.py", "train.py"]),
        ({"load.py": TOKENIZER + "tok = AutoTokenizer.from_pretrained('x/y', pad_token='</s>')\n",
          "train.py": COLLATOR + "from load import tok\nDataCollatorForLanguageModeling(tok, mlm=False)\n"},
         ["load.py", "train.py"]),
        ({"core/__init__.py": "from .load import load\n", "core/load.py": PAD_IS_EOS,
          "train.py": TRAIN.replace("from load", "from core")}, ["load.py", "train.py"]),
        ({"train.py": COLLATOR + TOKENIZER + "from names import tok\ntok.pad_token = tok.eos_token\nimport run\n",
          "names.py": TOKENIZER + "tok = AutoTokenizer.from_pretrained('x/y')\n",
          "run.py": COLLATOR + "from names import tok\nDataCollatorForLanguageModeling(tok, mlm=False)\n"},
         ["train.py", "run.py"]),
        ({"load.py": PAD_IS_EOS, "coll.py": DATACLASS_COLLATOR,
          "train.py": "from coll import Collate\nfrom load import load\nfit(Collate(load()))\n"},
         ["load.py", "coll.py"]),
    ],
)  # fmt: skip
def test_a_pad_that_is_set_in_one_file_and_masked_in_another(
    files: Mapping[str, str], places: list[str], tmp_path: Path
) -> None:
    assert found(tmp_path, files, PAD) == [[PAD, *places]]


@pytest.mark.parametrize(
    "files",
    [
        {"load.py": LOAD.format("tok.pad_token = '<unk>'"), "train.py": TRAIN},
        {"load.py": PAD_IS_EOS, "train.py": TRAIN.replace("tok = load()", "tok = load()\ntok.pad_token = '<unk>'")},
        {"load.py": PAD_IS_EOS, "train.py": TRAIN.replace("tok = load()", "tok = other()")},
        {"load.py": PAD_IS_EOS, "train.py": COLLATOR + "import load\nDataCollatorForLanguageModeling(t, mlm=False)\n"},
        {"load.py": PAD_IS_EOS, "train.py": TRAIN.replace("mlm=False", "mlm=True")},
        {"load.py": PAD_IS_EOS, "eval.py": "from load import load\nload()\n", "train.py": COLLATOR + TOKENIZER
         + "DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained('x/y'), mlm=False)\n"},
        {"load.py": LOAD.replace("'x/y'", "'google/gemma-2-2b'").format(
            "if tok.pad_token is None:\n        tok.pad_token = tok.eos_token"), "train.py": TRAIN},
        {"other/load.py": PAD_IS_EOS, "train.py": TRAIN},
        {"load.py": PAD_IS_EOS, "coll.py": DATACLASS_COLLATOR,
         "train.py": "from coll import Collate\nfrom load import load\nload()\nfit(Collate(other()))\n"},
        {"load.py": LOAD.format("tok.pad_token = '<unk>'"), "coll.py": DATACLASS_COLLATOR,
         "train.py": "from coll import Collate\nfrom load import load\nfit(Collate(load()))\n"},
        {"load.py": LOAD.format("pass"), "train.py": TRAIN.replace("tok = load()", "import ask\ntok = load()"),
         "ask.py": "from load import load\ndef ask():\n    tok = load()\n    tok.pad_token = tok.eos_token\n"},
    ],
)  # fmt: skip
def test_another_tokenizer_or_another_pad_is_no_fault(
    files: Mapping[str, str], tmp_path: Path
) -> None:
    assert found(tmp_path, files, PAD) == []


GENERATE = (
    "from transformers import AutoModelForCausalLM\n"
    "def answer(tok, texts):\n    model = AutoModelForCausalLM.from_pretrained('x/y')\n"
    "    batch = tok(texts, padding=True, return_tensors='pt')\n"
    "    return model.generate(**batch, max_new_tokens=20)\n"
)
ASK = (
    TOKENIZER
    + "from gen import answer\ntok = AutoTokenizer.from_pretrained('x/y')\n{}answer(tok, ['a',"
    " 'bc'])\n"
)
RIGHT = "right-padding-at-generation"
LENGTH = "max-length-left-to-trl-default"
ADDED = "tokens-added-without-resize"
ADD = (
    TOKENIZER + "def add(tok):\n    tok.add_tokens(['<call>'])\ntok ="
    " AutoTokenizer.from_pretrained('gpt2')\nadd(tok)\n"
)
MODEL = (
    "from transformers import AutoModelForCausalLM\nimport add\nm ="
    " AutoModelForCausalLM.from_pretrained('gpt2')\n"
)
LABELS = "lm-collator-overwrites-labels"
ROWS = "def encode(row):\n    row['labels'] = [-100] * row['n'] + row['ids']\n    return row\n"
MAPPED = (
    COLLATOR + TOKENIZER + "from datasets import load_dataset\nfrom rows import encode\n"
    "rows = load_dataset('json', data_files='x', split='train'){}\n"
    "DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained('x/y'), mlm=False)\n"
)
GONE = "trainer-argument-gone"
SFT = "from trl import SFTTrainer\nfrom args import args\nSFTTrainer('m', args=args())\n"
KEYS = "from transformers import Trainer\nfrom keys import options\nTrainer(**options)\n"


@pytest.mark.parametrize(
    ("files", "rule", "is_found"),
    [
        ({"gen.py": GENERATE, "ask.py": ASK.format("")}, RIGHT, True),
        ({"gen.py": GENERATE, "ask.py": ASK.format("tok.padding_side = 'left'\n")}, RIGHT, False),
        ({"gen.py": GENERATE, "other.py": "tok.padding_side = 'left'\n"}, RIGHT, True),
        ({"add.py": ADD, "model.py": MODEL}, ADDED, True),
        ({"add.py": ADD, "model.py": MODEL + "m.resize_token_embeddings(64)\n"}, ADDED, False),
        ({"rows.py": ROWS, "train.py": MAPPED.format(".map(encode)")}, LABELS, True),
        ({"rows.py": ROWS, "train.py": MAPPED.format("")}, LABELS, False),
        ({"args.py": "from trl import SFTConfig\ndef args():\n    return SFTConfig('o', max_length=64)\n",
          "train.py": SFT}, LENGTH, False),
        ({"args.py": "from trl import SFTConfig\ndef args():\n    return SFTConfig('o')\n",
          "train.py": SFT}, LENGTH, True),
        ({"args.py": "import trl\nclass SFTConfig(trl.SFTConfig):\n    pass\n",
          "bench.py": "from args import SFTConfig\nrun(SFTConfig('o'))\n"}, LENGTH, False),
        ({"keys.py": "options = dict(model='m')\noptions['tokenizer'] = tok\n", "train.py": KEYS},
         GONE, True),
        ({"keys.py": "options = dict(model='m')\n", "train.py": KEYS}, GONE, False),
        ({"keys.py": "import unsloth\noptions = dict(tokenizer=tok)\n", "train.py": KEYS}, GONE, False),
    ],
)  # fmt: skip
def test_what_another_file_does_decides(
    files: Mapping[str, str], rule: str, is_found: bool, tmp_path: Path
) -> None:
    assert [one[0] for one in found(tmp_path, files, rule)] == [rule] * is_found


def test_files_that_are_named_one_by_one_are_judged_together_too(tmp_path: Path) -> None:
    paths = written(tmp_path, {"train.py": TRAIN, "load.py": PAD_IS_EOS})
    assert [one.rule for one in lint(paths, select=[PAD]).findings] == [PAD]
    assert not lint(paths[:1], select=[PAD]).findings
    assert not lint(paths[1:], select=[PAD]).findings


def test_a_fix_of_one_file_is_tried_with_the_others(tmp_path: Path) -> None:
    known = PAD_IS_EOS.replace("'x/y'", "'mistralai/Mistral-7B-v0.1'")
    written(tmp_path, {"load.py": known, "train.py": TRAIN})
    report = lint([tmp_path], select=[PAD], fix=True)
    assert [change.path for change in report.changes] == [str(tmp_path / "load.py")]
    assert (tmp_path / "load.py").read_text("utf-8") == known.replace("tok.eos_token", '"<unk>"')
    assert not report.findings

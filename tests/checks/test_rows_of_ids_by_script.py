"""The token ids that a training script makes of its rows are judged, at the lines of the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from tests.parts.lay_out import tokenizer_folder
from truetune.checks.check_paths import check_paths
from truetune.checks.inspect_tokenized import TokenizedReport
from truetune.checks.reports import Report
from truetune.settings.run_spec import RunSpec

ROWS = [
    {"frage": f"Wie alt ist Turm {n}?", "answer": f"Er ist {n * 7} Jahre alt."}
    for n in range(1, 25)
]
SCRIPT = """
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments
)

tok = AutoTokenizer.from_pretrained("TOKENIZER")

def encode(row):
    chat = [{"role": "user", "content": row["frage"]}]
    whole = chat + [{"role": "assistant", "content": row["answer"]}]
    head = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    text = tok.apply_chat_template(whole, tokenize=False)
    n = len(tok(head, add_special_tokens=False).input_ids)
    enc = tok(text, add_special_tokens=False, truncation=True, max_length=LIMIT)
    labels = enc["input_ids"].copy()
    LABELS
    enc["labels"] = labels
    return enc

rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows.map(encode, remove_columns=rows.column_names)
trainer = Trainer(
    model=AutoModelForCausalLM.from_pretrained("TOKENIZER"),
    args=TrainingArguments(output_dir="out"),
    train_dataset=rows,
    data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
)
trainer.train()
"""


def project(
    folder: Path, labels: str, *, limit: int = 512, tokenizer: str = "org/model", text: str = SCRIPT
) -> str:
    """A folder with rows and a script that masks labels so."""
    lines = "\n".join(json.dumps(row) for row in ROWS)
    (folder / "rows.jsonl").write_text(lines + "\n", encoding="utf-8")
    code = dedent(text).replace("LABELS", labels).replace("LIMIT", str(limit))
    (folder / "train.py").write_text(code.replace("TOKENIZER", tokenizer), encoding="utf-8")
    return str(folder)


def rules_of(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity != "info"}


@pytest.fixture(scope="module")
def tokenizer() -> str:
    return str(tokenizer_folder("qwen2.5-instruct"))


MASKS = {
    "labels[:n] = [-100] * n": set(),
    "labels = [-100] * n + labels[n:]": set(),
    "labels = [-100 if i < n else one for i, one in enumerate(labels)]": set(),
    "for i in range(n): labels[i] = -100": set(),
    "labels = labels": {"prompts-supervised-in-token-rows"},
    "labels[n:] = [-100] * (len(labels) - n)": {
        "answers-masked-in-token-rows",
        "prompts-supervised-in-token-rows",
    },
    "labels = [-100] * len(labels)": {"answers-masked-in-token-rows"},
}


@pytest.mark.parametrize("mask", MASKS)
def test_labels_are_judged_however_they_are_masked(
    mask: str, tokenizer: str, tmp_path: Path
) -> None:
    report = check_paths([project(tmp_path, mask)], RunSpec(tokenizer=tokenizer))
    assert isinstance(report, TokenizedReport)
    assert report.rows == len(ROWS)
    assert (
        rules_of(report)
        & {
            "prompts-supervised-in-token-rows",
            "answers-masked-in-token-rows",
        }
        == MASKS[mask]
    )
    files = {case.origin.file for one in report.findings for case in one.cases if case.origin}
    assert all(Path(name).name == "rows.jsonl" for name in files)


def test_the_tokenizer_that_the_script_names_is_used(tokenizer: str, tmp_path: Path) -> None:
    mask = "labels = [-100 if i < n else one for i, one in enumerate(labels)]"
    folder = project(tmp_path, mask, limit=12, tokenizer=tokenizer)
    report = check_paths([folder], RunSpec())
    assert isinstance(report, TokenizedReport)
    assert "answers-masked-in-token-rows" in rules_of(report)


def test_a_column_that_is_read_nowhere_is_named_without_a_tokenizer(tmp_path: Path) -> None:
    text = SCRIPT.replace('row["answer"]', 'row["frage"]')
    report = check_paths([project(tmp_path, "labels[:n] = [-100] * n", text=text)], RunSpec())
    [found] = [one for one in report.findings if one.rule == "unused-columns"]
    assert "answer (24 rows)" in found.message
    other = tmp_path / "sound"
    other.mkdir()
    sound = check_paths([project(other, "labels[:n] = [-100] * n")], RunSpec())
    assert "unused-columns" not in {one.rule for one in sound.findings}


LOOPS = {
    "a list and a collator": """
rows = [json.loads(line) for line in open("rows.jsonl")]
def collate(batch):
    ids, labels = zip(*[encode(row) for row in batch])
    width = max(len(one) for one in ids)
    return {
        "input_ids": torch.tensor([one + [tok.pad_token_id] * (width - len(one)) for one in ids]),
        "labels": torch.tensor([one + [-100] * (width - len(one)) for one in labels]),
    }
loader = DataLoader(rows, batch_size=4, collate_fn=collate)
""",
    "a data set of the script": """
class Towers(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(line) for line in open(path)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        ids, labels = encode(self.rows[i])
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}
loader = DataLoader(Towers("rows.jsonl"), batch_size=4)
""",
    "tensors that are filled": """
rows = [json.loads(line) for line in open("rows.jsonl")]
def collate(batch):
    made = [encode(row) for row in batch]
    width = max(len(ids) for ids, _ in made)
    ids = torch.full((len(made), width), tok.pad_token_id)
    labels = torch.full((len(made), width), -100)
    for i, (x, y) in enumerate(made):
        ids[i, : len(x)] = torch.tensor(x)
        labels[i, : len(y)] = torch.tensor(y)
    return {"input_ids": ids, "labels": labels}
loader = DataLoader(rows, batch_size=4, collate_fn=collate)
""",
    "pads masked by their id": """
rows = [json.loads(line) for line in open("rows.jsonl")]
def collate(batch):
    made = [encode(row) for row in batch]
    ids = pad_sequence([torch.tensor(x) for x, _ in made], batch_first=True, padding_value=0)
    labels = pad_sequence([torch.tensor(y) for _, y in made], batch_first=True, padding_value=0)
    labels[labels == 0] = -100
    return dict(input_ids=ids, labels=labels)
loader = DataLoader(rows, batch_size=4, collate_fn=collate)
""",
}
LOOP = """
import json
import shutil
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("org/model")

def encode(row):
    chat = [{"role": "user", "content": row["frage"]}]
    head = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>", add_special_tokens=False)["input_ids"]
    return p + a, MASK

ROWS
model = AutoModelForCausalLM.from_pretrained("org/model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("way", LOOPS)
@pytest.mark.parametrize("is_masked", [True, False])
def test_rows_of_own_loops_are_judged(
    way: str, is_masked: bool, tokenizer: str, tmp_path: Path
) -> None:
    mask = "[-100] * len(p) + a" if is_masked else "p + a"
    text = LOOP.replace("MASK", mask).replace("ROWS", LOOPS[way].strip())
    report = check_paths([project(tmp_path, "", text=text)], RunSpec(tokenizer=tokenizer))
    assert isinstance(report, TokenizedReport)
    found = "prompts-supervised-in-token-rows" in rules_of(report)
    assert found is not is_masked
    assert report.rows == len(ROWS)


def test_answers_that_are_all_alike_are_found_in_what_the_script_makes(
    tokenizer: str, tmp_path: Path
) -> None:
    text = LOOP.replace("MASK", "[-100] * len(p) + a")
    text = text.replace("ROWS", LOOPS["a list and a collator"].strip())
    text = text.replace('row["answer"]', '"CONCLUDE"')
    report = check_paths([project(tmp_path, "", text=text)], RunSpec(tokenizer=tokenizer))
    assert "few-distinct-answers" in rules_of(report)


TEXTS = """
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("org/model")
rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows.map(lambda r: {"text": "F: " + r["frage"] + " A: " + r["answer"] + END})
SFTTrainer(model="org/model", train_dataset=rows, args=SFTConfig(max_length=512)).train()
"""


@pytest.mark.parametrize("end", ["tok.eos_token", '"."'])
def test_the_special_tokens_of_the_tokenizer_are_those_of_the_script(
    end: str, tokenizer: str, tmp_path: Path
) -> None:
    folder = project(tmp_path, "", text=TEXTS.replace("END", end))
    run = RunSpec(tokenizer=tokenizer, trained_by="transformers")
    found = "eos-not-appended-by-tokenizer" in rules_of(check_paths([folder], run))
    assert found is (end == '"."')


def test_pads_that_a_call_writes_are_in_the_ids(tokenizer: str, tmp_path: Path) -> None:
    """The length of a padded prompt is that of the whole row: all answers are masked."""
    text = SCRIPT.replace("add_special_tokens=False).input_ids", PADDED)
    mask = "labels = [-100 if i < n else one for i, one in enumerate(labels)]"
    folder = project(tmp_path, mask, limit=64, text=text)
    report = check_paths([folder], RunSpec(tokenizer=tokenizer))
    assert "answers-masked-in-token-rows" in rules_of(report)


PADDED = 'padding="max_length", truncation=True, max_length=64).input_ids'


@pytest.mark.parametrize(
    ("in_folder", "in_script", "is_cut"),
    [
        (43, "", True),
        (131_072, "", False),
        (43, "tok.model_max_length = 512", False),
        (512, "tok.model_max_length = 43", True),
        # A limit that is not known is none.
        (43, "tok.model_max_length = model_limit()", False),
    ],
)
def test_truncation_without_a_length_keeps_what_the_tokenizer_says(
    in_folder: int, in_script: str, is_cut: bool, tokenizer: str, tmp_path: Path
) -> None:
    own = tmp_path / "tokenizer"
    shutil.copytree(tokenizer, own)
    config = own / "tokenizer_config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    values["model_max_length"] = in_folder
    config.write_text(json.dumps(values), encoding="utf-8")
    text = SCRIPT.replace(", max_length=LIMIT", "").replace(
        "def encode", f"{in_script}\n\ndef encode"
    )
    folder = project(tmp_path, "labels[:n] = [-100] * n", text=text)
    report = check_paths([folder], RunSpec(tokenizer=str(own)))
    found = [one for one in report.findings if one.rule == "token-rows-cut-at-the-limit"]
    assert bool(found) is is_cut

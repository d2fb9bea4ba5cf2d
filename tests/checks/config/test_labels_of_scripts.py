"""What a script's own labels say without its tokenizer: prompts that are learned, answers that are cut, one class."""

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

WORDS = (
    "The boiler in the cellar was bled, filled and started again before the evening shift came in. "
)
ROWS = [
    {
        "question": f"{n}. {WORDS * (2 + n % 3)}What comes next?",
        "answer": f"Note {n} in the book, with the pressure of {n * 7} and your name.",
        "team": ("care", "parts")[n % 2],
        "language": "en",
    }
    for n in range(24)
]
HEAD = """from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("{model}")
rows = load_dataset("json", data_files="rows.jsonl", split="train")
def chat(row):
    return [{{"role": "user", "content": row["question"]}}, {{"role": "assistant", "content": row["answer"]}}]
def encode(row):
    text = tok.apply_chat_template(chat(row), tokenize=False)
    head = tok.apply_chat_template(chat(row)[:-1], tokenize=False, add_generation_prompt=True)
    ids = tok(text, add_special_tokens=False{cut})["input_ids"]
    n = len(tok(head, add_special_tokens=False)["input_ids"])
    return {{"input_ids": ids, "labels": {labels}}}
rows = rows.map(encode, remove_columns=rows.column_names)
Trainer("model", TrainingArguments("out"), train_dataset=rows, data_collator={collator}).train()
"""
COPY, MASKED = "list(ids)", "[-100] * n + ids[n:]"
MASKED_PADS = "[-100 if one == tok.pad_token_id else one for one in ids]"
SEQ2SEQ = "DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)"
LM = "DataCollatorForLanguageModeling(tok, mlm=False)"
QWEN, UNKNOWN = "Qwen/Qwen2.5-3B-Instruct", "some/model"


def found(folder: Path, script: str, rule: str) -> list[str]:
    """The messages of one rule on a folder with the rows and a script."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "train.py").write_text(script)
    report = check_paths([str(folder)], RunSpec())
    return [one.message for one in report.findings if one.rule == rule]


def script(labels: str, *, model: str = QWEN, cut: str = "", collator: str = SEQ2SEQ) -> str:
    """A script that makes ids and labels of chats."""
    return HEAD.format(labels=labels, model=model, cut=cut, collator=collator)


@pytest.mark.parametrize(
    "text",
    [script(COPY), script("ids.copy()"), script(MASKED_PADS), script(COPY, model=UNKNOWN)],
)
def test_labels_that_hold_prompts(text: str, tmp_path: Path) -> None:
    [message] = found(tmp_path, text, "prompts-are-learned")
    assert "of all 24 rows" in message
    assert "%" in message


@pytest.mark.parametrize(
    "text",
    [
        script(MASKED),
        script(MASKED, model=UNKNOWN),
        # Whoever takes this collator trains on texts.
        script(COPY, collator=LM),
        # Which text it masks by is not known without the template.
        script("mask(ids)", model=UNKNOWN) + "\nIGNORED = -100\n",
    ],
)
def test_labels_without_prompts(text: str, tmp_path: Path) -> None:
    assert not found(tmp_path, text, "prompts-are-learned")


@pytest.mark.parametrize("labels", [MASKED, f"({MASKED})[:len(ids)]"])
def test_answers_that_a_script_cuts(labels: str, tmp_path: Path) -> None:
    [message] = found(
        tmp_path, script(labels, cut=", truncation=True, max_length=24"), "rows-surely-cut"
    )
    assert "24 of 24 rows are certainly cut" in message
    assert "no token of the answer is left" in message


@pytest.mark.parametrize("cut", ["", ", truncation=True, max_length=1024"])
def test_rows_that_fit(cut: str, tmp_path: Path) -> None:
    assert not found(tmp_path, script(MASKED, cut=cut), "rows-surely-cut")


LONG_ROWS = """import json
from torch.utils.data import Dataset
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments
class Rows(Dataset):
    def __init__(self, path, tok, width={width}):
        self.rows = [json.loads(line) for line in open(path)]
        self.tok, self.width = tok, width
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, place):
        row = self.rows[place]
        answer = " ".join([row["answer"]] * 80)
        ids = self.tok.encode(row["question"]) + self.tok.encode(answer) + [self.tok.eos_token_id]
        return {{"input_ids": ids[: self.width], "labels": ids[: self.width]}}
tok = AutoTokenizer.from_pretrained("some/model")
Trainer("model", TrainingArguments("out"), train_dataset=Rows("rows.jsonl", tok),
        data_collator=DataCollatorForSeq2Seq(tok)).train()
"""


@pytest.mark.parametrize(("width", "count"), [(200, 1), (20_000, 0)])
def test_lists_of_thousands_of_ids_are_followed(width: int, count: int, tmp_path: Path) -> None:
    assert len(found(tmp_path, LONG_ROWS.format(width=width), "rows-surely-cut")) == count


CLASSIFIER = """from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("org/encoder")
rows = load_dataset("json", data_files="rows.jsonl", split="train").rename_column("{label}", "labels")
rows = rows.map(lambda batch: tok(batch["question"], truncation=True, max_length=256), batched=True)
rows = rows.select_columns(["input_ids", "labels"])
model = AutoModelForSequenceClassification.from_pretrained("org/encoder")
Trainer(model, TrainingArguments("out"), train_dataset=rows).train()
"""


def test_a_class_that_is_the_same_in_each_row(tmp_path: Path) -> None:
    rule = "few-distinct-answers"
    assert found(tmp_path, CLASSIFIER.format(label="language"), rule)
    assert not found(tmp_path, CLASSIFIER.format(label="team"), rule)


FACTORY = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "dataset": "shop",
    "dataset_dir": ".",
    "finetuning_type": "lora",
    "template": "qwen",
    "cutoff_len": 2048,
}


@pytest.mark.parametrize(("answer", "is_found"), [("question", True), ("answer", False)])
def test_a_column_that_is_prompt_and_answer(answer: str, is_found: bool, tmp_path: Path) -> None:
    columns = {"prompt": "question", "response": answer}
    about = {"shop": {"file_name": "rows.jsonl", "columns": columns}}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "dataset_info.json").write_text(json.dumps(about))
    (tmp_path / "train.yaml").write_text(json.dumps({**FACTORY, "dataset_dir": str(tmp_path)}))
    rules = {one.rule for one in check_paths([str(tmp_path / "train.yaml")], RunSpec()).findings}
    assert ("answer-equals-prompt-or-holds-markers" in rules) is is_found


@pytest.mark.parametrize(("most", "is_found"), [(50, True), (1_000, False)])
def test_a_trial_limit_on_rows_that_are_not_here(most: int, is_found: bool, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(json.dumps({**FACTORY, "max_samples": most}))
    rules = {one.rule for one in check_paths([str(tmp_path / "train.yaml")], RunSpec()).findings}
    assert ("rows-left-out-by-limit" in rules) is is_found

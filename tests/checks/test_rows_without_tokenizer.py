"""Rows whose tokenizer is not at hand: rules that compare texts judge them, and the rest is said to be not judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import truetune
from tests.checks.pages import block, sections
from tests.checks.pages.data import write_data
from truetune.checks.check_paths import check_paths
from truetune.checks.judgement import NotJudged
from truetune.checks.reports import Report
from truetune.checks.rule import DataRule
from truetune.checks.rule_catalogue import all_rules
from truetune.errors import DataError
from truetune.settings.run_spec import RunSpec

ABSENT = "nobody/no-such-model-9b"
TEXT_RULES = [
    rule for rule in all_rules() if issubclass(rule, DataRule) and not rule.needs_tokenizer
]
WHOLE = "Für die Tomaten genügt es, alle {0} Tage zu gießen, und zwar früh am Morgen."


def rows(*, are_broken: bool) -> list[dict[str, str]]:
    answers = [WHOLE.format(i) for i in range(3, 33)]
    if are_broken:
        answers = [answer.encode().decode("cp1252") for answer in answers]
    return [
        {"instruction": f"Wie oft gieße ich Beet {i}?", "output": answer}
        for i, answer in enumerate(answers)
    ]


def write_rows(folder: Path, *, are_broken: bool) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows(are_broken=are_broken)), encoding="utf-8")
    return path


def write_settings(stack: str, folder: Path) -> Path:
    (folder / "dataset_info.json").write_text(
        json.dumps({"rows": {"file_name": "rows.json"}}), encoding="utf-8"
    )
    data = str(folder / "rows.json")
    settings: dict[str, Any] = {
        "axolotl": {
            "base_model": ABSENT,
            "datasets": [{"path": data, "type": "alpaca"}],
            "sequence_len": 512,
            "micro_batch_size": 1,
        },
        "llama-factory": {
            "model_name_or_path": ABSENT,
            "stage": "sft",
            "do_train": True,
            "dataset": "rows",
            "dataset_dir": str(folder),
            "template": "qwen",
            "finetuning_type": "lora",
        },
    }[stack]
    path = folder / f"{stack}.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


def lacking(report: Report) -> NotJudged:
    """What the report says of the tokens that nobody could count."""
    return next(part for part in report.not_judged if part.what.startswith("the prompts, tokens"))


@pytest.mark.parametrize("are_broken", [True, False])
def test_a_file_of_rows_is_judged_by_its_texts(tmp_path: Path, are_broken: bool) -> None:
    report = truetune.check(write_rows(tmp_path, are_broken=are_broken))
    assert ("ROW021" in codes(report)) is are_broken
    # The user named the rows alone: that half of it was not judged is no verdict without findings.
    assert lacking(report).asked


@pytest.mark.parametrize("stack", ["axolotl", "llama-factory"])
@pytest.mark.parametrize("are_broken", [True, False])
def test_rows_of_settings_whose_model_is_elsewhere(
    stack: str, are_broken: bool, tmp_path: Path
) -> None:
    write_rows(tmp_path, are_broken=are_broken)
    report = truetune.check(write_settings(stack, tmp_path))
    assert ("ROW021" in codes(report)) is are_broken
    assert ABSENT in lacking(report).reason
    notes = [text for subject in report.subjects for name, text in subject.facts if name == "note"]
    assert any(text.startswith("judged by their texts alone") for text in notes)


def test_rows_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"instruction": 1}, {"instruction": ', encoding="utf-8")
    with pytest.raises(DataError):
        truetune.check(path)


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.name())
@pytest.mark.parametrize(("section", "found"), [("Example", True), ("Use instead", False)])
def test_a_rule_on_texts_finds_the_same_without_a_tokenizer(
    rule: type[DataRule], section: str, found: bool, tmp_path: Path
) -> None:
    spec = write_data(block(sections(rule)[section]), tmp_path / "page")
    # Settings of the example's own, as its format and columns, stand; its tokenizer is taken away.
    spec = spec.model_copy(update={"tokenizer": None, "model": None, "select": (rule.name(),)})
    report = check_paths((), spec)
    assert (rule.code in codes(report)) is found


def adapter_alone(folder: Path) -> None:
    folder.joinpath("adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')


def broken_file(folder: Path) -> None:
    folder.joinpath("tokenizer.json").write_text('{"version": "1.0", "model": {')


def weights_alone(folder: Path) -> None:
    folder.joinpath("model-q4_k_m.gguf").write_bytes(b"GGUF")


def broken_template(folder: Path) -> None:
    backend = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.save(str(folder / "tokenizer.json"))
    folder.joinpath("chat_template.jinja").write_text("{% for message in messages %}")


@pytest.mark.parametrize(
    "fill", [adapter_alone, broken_file, weights_alone, broken_template, lambda folder: None]
)
def test_a_script_s_tokenizer_that_can_not_be_loaded_hides_nothing(
    fill: Callable[[Path], None], tmp_path: Path
) -> None:
    tmp_path.joinpath("tok").mkdir()
    fill(tmp_path / "tok")
    write_rows(tmp_path, are_broken=True)
    tmp_path.joinpath("train.py").write_text(
        "from datasets import load_dataset\nfrom transformers import AutoTokenizer\nfrom trl import SFTTrainer\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(tmp_path / 'tok')!r})\n"
        "rows = load_dataset('json', data_files='rows.json', split='train')\n"
        "rows = rows.map(lambda row: {'prompt': row['instruction'], 'completion': row['output']})\n"
        "SFTTrainer(model='org/base', train_dataset=rows, processing_class=tokenizer).train()\n"
    )
    report = check_paths([tmp_path], RunSpec())
    assert "broken-encoding" in {finding.rule for finding in report.findings}
    assert any(
        one.what == "the prompts, tokens and lengths of the data" for one in report.not_judged
    )

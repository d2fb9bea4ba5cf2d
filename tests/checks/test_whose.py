"""Whose trainer it is: named, or found among the paths; and the severities that follow its facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.parts import folder
from truetune.checks.check_data import check
from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.checks.reports import DataReport
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.severity_by_trainer import (
    SeverityByFact,
    SeverityForFact,
    adjust_severities_to_trainer,
)
from truetune.cli import truetune_group
from truetune.demo import DATA, TOKENIZER
from truetune.errors import SpecError
from truetune.report.supervision_headline import supervision_verdict
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.trainers import TRAINER_NAMES, TRAINERS, facts_of_trainer
from truetune.trainers.trainer_fact_types import TrainerName

SCRIPTS: dict[str, tuple[str, str | None]] = {
    "trl": ("from trl import SFTTrainer\nSFTTrainer('m').train()", "position"),
    "trl by its module": ("import trl\nt = trl.SFTTrainer(model='m')\nt.train()", "position"),
    "trl with the other collator": (
        "from transformers import DataCollatorForLanguageModeling as C\nfrom trl import SFTTrainer\n"
        "SFTTrainer('m', data_collator=C(tok, mlm=False))",
        "id",
    ),
    "transformers": (
        "from transformers import DataCollatorForLanguageModeling, Trainer\n"
        "Trainer(m, data_collator=DataCollatorForLanguageModeling(tok, mlm=False)).train()",
        "id",
    ),
    "transformers with given labels": (
        "from transformers import DataCollatorForSeq2Seq, Trainer\n"
        "Trainer(m, data_collator=DataCollatorForSeq2Seq(tok))",
        "position",
    ),
    "transformers with its own": (
        "from transformers import Trainer\nfrom mine import collate\nTrainer(m, data_collator=collate)",
        None,
    ),
    "unsloth": (
        "from unsloth import FastLanguageModel\nfrom trl import SFTTrainer\n"
        "FastLanguageModel.from_pretrained('m')\nSFTTrainer('m')",
        "position",
    ),
    "torch": (
        "import torch\no = torch.optim.AdamW(m.parameters())\nfor b in l:\n    m(**b).loss.backward()\n    o.step()",
        None,
    ),
    "torch that masks by id": (
        "import torch\no = torch.optim.AdamW(m.parameters())\nfor b in l:\n"
        "    b['labels'][b['labels'] == tok.pad_token_id] = -100\n    m(**b).loss.backward()",
        "id",
    ),
}  # fmt: skip


def seen(paths: list[Path], **settings: Any) -> DataReport:
    given = {"tokenizer": str(TOKENIZER), "select": ["TOK001"], **settings}
    report = check_paths([str(DATA), *map(str, paths)], validate_settings(given, "test"))
    assert isinstance(report, DataReport)
    return report


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_whose_trainer_it_is(name: str, tmp_path: Path) -> None:
    text, pads = SCRIPTS[name]
    (tmp_path / "train.py").write_text(text)
    report = seen([tmp_path / "train.py"])
    assert report.spec.trained_by == name.split()[0]
    assert report.spec.training.pads_masked_by in ({None, "unknown"} if pads is None else {pads})


def test_a_script_that_trains_nothing_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(
        "import torch\nfrom transformers import AutoModel\nAutoModel.from_pretrained('m')"
    )
    assert seen([tmp_path / "read.py"]).spec.trained_by is None


def test_what_a_script_sets_counts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from trl import SFTConfig, SFTTrainer\nSFTTrainer('m', args=SFTConfig('o',"
        " assistant_only_loss=True))"
    )
    learned = seen([tmp_path / "train.py"]).learned
    assert learned is not None
    assert (learned.because, learned.supervised) == ("assistant_only_loss: true", learned.ideal)
    assert seen([tmp_path / "train.py"], trained_by="trl").learned == learned


def test_two_trainers_among_the_paths_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPTS["trl"][0])
    (tmp_path / "b.py").write_text(SCRIPTS["transformers"][0])
    both = [tmp_path / "a.py", tmp_path / "b.py"]
    report = seen(both)
    assert report.spec.trained_by is None
    (note,) = [
        fact
        for subject in report.subjects
        for fact in subject.facts
        if "several trainers" in fact[1]
    ]
    assert str(tmp_path / "a.py") in note[1]
    assert seen(both, trained_by="trl").spec.trained_by == "trl"


CONFIGS: dict[TrainerName, dict[str, Any]] = {
    "trl": {"model_name_or_path": "{model}", "dataset_name": "{data}", "learning_rate": 1e-4, "max_length": 512,
            "packing": False},
    "axolotl": {"base_model": "{model}", "datasets": [{"path": "{data}", "type": "chat_template"}],
                "sequence_len": 512, "micro_batch_size": 1},
    "truetune": {"model": "{model}", "tokenizer": "{model}", "data": "{data}"},
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_settings_file_says_whose_trainer_it_is(name: TrainerName, tmp_path: Path) -> None:
    text = json.dumps(CONFIGS[name]).replace("{model}", str(TOKENIZER)).replace("{data}", str(DATA))
    (tmp_path / "run.yaml").write_text(text)
    result = CliRunner().invoke(truetune_group, ["check", str(tmp_path / "run.yaml"), "--json"])
    assert json.loads(result.stdout)["data"]["learned"]["trainer"] == name


@pytest.mark.parametrize("settings", [{"trainer": "axolotl"}, {"trained_by": "axolotl"}])
def test_settings_name_another_trainer(settings: dict[str, str], tmp_path: Path) -> None:
    given = {"tokenizer": str(TOKENIZER), "data": str(DATA), **settings}
    (tmp_path / "truetune.yaml").write_text(json.dumps(given))
    result = CliRunner().invoke(
        truetune_group, ["check", str(tmp_path / "truetune.yaml"), "--json"]
    )
    assert json.loads(result.stdout)["data"]["learned"]["trainer"] == "axolotl"


def test_a_trainer_that_there_is_not() -> None:
    with pytest.raises(SpecError, match="expected one of trl, transformers"):
        validate_settings({"trainer": "trll"}, "test")
    with pytest.raises(SpecError, match="keep one"):
        validate_settings({"trainer": "trl", "trained_by": "axolotl"}, "test")


@pytest.mark.parametrize("family", ["smollm2", "deepseek-v3"])
def test_a_pad_that_is_the_eos(family: str) -> None:
    found = {
        name: [f.severity for f in _of(family, name) if f.code == "TOK001"]
        for name in (*TRAINER_NAMES, None)
    }
    assert found == {
        "trl": ["info"],
        "axolotl": ["info"],
        "llama-factory": ["info"],
        "unsloth": [],
        "truetune": [],
        "transformers": ["error"],
        "torch": ["warning"],
        None: ["warning"],
    }
    (unknown,) = _of(family, None)
    assert "by position" in unknown.evidence[-1]
    assert "by id" in unknown.evidence[-1]


def _of(family: str, name: TrainerName | None) -> tuple[Finding, ...]:
    given = {
        "data": str(DATA),
        "tokenizer": str(folder(family)),
        "trained_by": name,
        "select": ["TOK001"],
    }
    return check(validate_settings(given, "test")).findings


def test_healthy_sets_do_not_fail_where_the_trainer_is_not_known() -> None:
    """But for the tool calls that some of these templates do not write: test_lost_fields is about them."""
    for family in ("smollm2", "deepseek-v3", "qwen2.5-instruct", "llama3-instruct"):
        given = {
            "data": str(DATA),
            "tokenizer": str(folder(family)),
            "ignore": ["field-reaches-no-token"],
        }
        assert not check(validate_settings(given, "test")).failed(), family


@pytest.mark.parametrize("name", [*TRAINER_NAMES, None])
def test_the_first_line_names_the_trainer_or_says_that_it_is_not_known(
    name: TrainerName | None,
) -> None:
    spec = RunSpec(data=(str(DATA),), tokenizer=str(TOKENIZER), trained_by=name)
    line = supervision_verdict(check(spec)).plain
    assert facts_of_trainer(name).name_in_reports in line or name is None
    assert ("--trainer" in line) == (name is None)


def test_text_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text(
        "".join(json.dumps({"text": f"Chapter {i}: it was open."}) + "\n" for i in range(4))
    )
    found = {}
    for name in TRAINER_NAMES:
        given = {
            "data": str(path),
            "tokenizer": str(TOKENIZER),
            "trained_by": name,
            "select": ["LEN"],
        }
        found[name] = {f.code for f in check(validate_settings(given, "test")).findings}
    assert found == {
        "trl": set(),
        "axolotl": set(),
        "llama-factory": set(),
        "unsloth": {"LEN001"},
        "truetune": {"LEN001"},
        "transformers": {"LEN001"},
        "torch": {"LEN001"},
    }


def test_a_text_that_ends_with_the_eos_gets_no_second_one(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text(json.dumps({"text": "It was open.<|im_end|>"}) + "\n")
    given = {
        "data": str(path),
        "tokenizer": str(TOKENIZER),
        "trained_by": "trl",
        "select": ["LEN002"],
    }
    assert check(validate_settings(given, "test")).findings == ()


@pytest.mark.parametrize(
    ("name", "codes"),
    [("trl", {"LEN003"}), ("axolotl", {"LEN003"}), ("truetune", set()), (None, {"LEN003"})],
)
def test_answers_behind_the_limit(name: TrainerName | None, codes: set[str]) -> None:
    given = {
        "data": str(DATA),
        "tokenizer": str(TOKENIZER),
        "trained_by": name,
        "max_length": 100,
        "select": ["LEN003"],
    }
    report = check(validate_settings(given, "test"))
    assert {f.code for f in report.findings} == codes
    assert report.learned is not None
    assert bool(report.learned.left_out) == (name in ("axolotl", "truetune"))


def dependent() -> Iterator[tuple[str, SeverityByFact]]:
    for rule in all_rules():
        yield from ((rule.name(), by) for by in rule.by_trainer)


@pytest.mark.parametrize(
    ("rule", "by"), list(dependent()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_rules_ask_for_facts_that_there_are(rule: str, by: SeverityByFact) -> None:
    values = set()
    for facts in TRAINERS.values():
        value = getattr(facts, by.fact.partition(".")[0]).value
        values.add(getattr(value, by.fact.partition(".")[2]) if "." in by.fact else value)
    known = {value for value in by.judged if value is not None}
    assert known & values, f"{rule}: no trainer has one of {known}"


def test_a_finding_is_capped_and_never_raised() -> None:
    made = Finding("r", "TT000", "info", "m", "h")
    by = (
        SeverityByFact(
            "pads_masked_by",
            {"id": SeverityForFact("error", "{trainer} does"), "position": SeverityForFact(None)},
        ),
    )
    (kept,) = adjust_severities_to_trainer([made], by, TRAINERS["transformers"])
    assert kept.severity == "info"
    assert kept.evidence == (f"{TRAINERS['transformers'].name_in_reports} does",)
    assert list(adjust_severities_to_trainer([made], by, TRAINERS["trl"])) == []


@pytest.mark.parametrize(
    ("count", "severity"), [(20, "warning"), (35, "warning"), (36, "error"), (40, "error")]
)
def test_a_loss_of_nearly_all_rows_keeps_its_severity(count: int, severity: str) -> None:
    made = Finding("r", "TT000", "error", "m", "h", count=count, total=40)
    by = (
        SeverityByFact(
            "cut.empties",
            {"dropped": SeverityForFact("warning", "{trainer} does", holds_for_all=False)},
        ),
    )
    (kept,) = adjust_severities_to_trainer([made], by, TRAINERS["trl"])
    assert kept.severity == severity


@pytest.mark.parametrize("long", [20, 40])
def test_pairs_that_lose_all_answers_are_an_error_of_the_package(long: int, tmp_path: Path) -> None:
    rows = [
        {
            "prompt": "where is it? " * (200 if i < long else 1),
            "chosen": f"It is in room {i}.",
            "rejected": "No idea.",
        }
        for i in range(40)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = RunSpec(
        data=(str(tmp_path / "pairs.jsonl"),), tokenizer=str(TOKENIZER), max_length=128, trained_by="trl",
        select=("truncation-leaves-no-label",),
    )  # fmt: skip
    (found,) = check(spec).findings
    assert found.severity == ("error" if long == 40 else "warning")
    pairs, fate = found.evidence
    assert pairs.endswith("if it is kept, its DPO loss stays at 0.693")
    assert fate == f"TRL {TRAINERS['trl'].release} silently drops rows without a label"

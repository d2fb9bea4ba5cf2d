"""The tools return records, and write nothing but what they are told to write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from truetune.assistants import tools
from truetune.demo import BROKEN, TOKENIZER
from truetune.errors import TruetuneError

SCRIPT = """from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.pad_token = tokenizer.eos_token
collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
Trainer(model="m", data_collator=collator).train()
"""
RULE = "pad-equals-eos-lm-collator"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script with a fault, rows with faults, and a log without one."""
    (tmp_path / "train.py").write_text(SCRIPT)
    shutil.copy(BROKEN, tmp_path / "chats.jsonl")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """What each file of a folder holds."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_reading_tools_find_it_and_write_nothing(project: Path) -> None:
    before = contents(project)
    script = str(project / "train.py")
    reports = (
        tools.check_files([script]),
        tools.lint_files([script]),
        tools.troubleshoot_symptom("the model never stops", [script]),
    )
    for report in reports:
        assert RULE in [finding.rule for finding in report.findings]
    shown = tools.fix_files(script)
    assert [change.rule for change in shown.changes] == [RULE]
    assert shown.diff.startswith("--- ")
    assert not shown.written
    assert contents(project) == before


def test_rows_are_judged_with_the_tokenizer_and_fixed_into_a_new_file(project: Path) -> None:
    rows, out = project / "chats.jsonl", project / "fixed.jsonl"
    before = rows.read_bytes()
    shown = tools.fix_files(str(rows), str(TOKENIZER))
    assert shown.diff
    assert "turn-roles-unknown-to-template" in [change.rule for change in shown.changes]
    assert not shown.written
    assert not out.exists()
    done = tools.fix_files(str(rows), str(TOKENIZER), write=True, output=str(out))
    assert set(done.written) == {str(out), f"{out}.changes.jsonl"}
    assert rows.read_bytes() == before
    after = tools.check_files([str(out)], str(TOKENIZER), "trl")
    assert "turn-roles-unknown-to-template" not in [finding.rule for finding in after.findings]


def test_a_script_is_edited_in_place_when_told_to(project: Path) -> None:
    script = project / "train.py"
    done = tools.fix_files(str(script), write=True)
    assert done.written == (str(script),)
    assert not tools.lint_files([str(script)]).findings


def test_a_long_diff_is_cut(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_DIFF_CHARACTERS", 50)
    shown = tools.fix_files(str(project / "train.py"))
    assert len(shown.diff) == 50
    assert shown.diff_is_cut


def test_explain_gives_a_page_or_topics() -> None:
    page = json.loads(tools.explain_rule_or_words(RULE).as_json())
    assert page["name"] == RULE
    assert page["page"]
    fault = tools.explain_rule_or_words("prompts-in-loss")
    assert fault.name == "prompts-in-loss"
    assert fault.page.startswith("Prompts are in the loss.\n\n- `")
    assert "\n- `prompt-supervised` (BAT003, warning): The prompts are in the loss." in fault.page
    guide = tools.explain_rule_or_words("loss-does-not-fall")
    assert "Causes" in guide.page
    found = tools.explain_rule_or_words("the loss is flat")
    assert "loss-does-not-fall" in [topic.name for topic in found.topics]


def test_a_log_is_diagnosed(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    steps = [{"step": step, "loss": 2.0 if step < 30 else float("nan")} for step in range(60)]
    log.write_text("".join(json.dumps(step) + "\n" for step in steps))
    assert "loss-not-finite" in [one.rule for one in tools.diagnose_run(str(log)).findings]


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: tools.check_files([]),
        lambda folder: tools.check_files([f"{folder}/nowhere.jsonl"]),
        lambda folder: tools.lint_files([f"{folder}/nowhere.py"]),
        lambda folder: tools.diagnose_run(f"{folder}/nowhere"),
        lambda folder: tools.diagnose_run(f"{folder}/train.py", ["x.jsonl"]),
        lambda folder: tools.troubleshoot_symptom("", [f"{folder}/train.py"]),
        lambda folder: tools.explain_rule_or_words(" "),
        lambda folder: tools.explain_rule_or_words("no-such-rule"),
        lambda folder: tools.fix_files(f"{folder}/nowhere"),
        lambda folder: tools.fix_files(f"{folder}/chats.jsonl", write=True),
        lambda folder: tools.fix_files(f"{folder}/chats.jsonl", output=f"{folder}/x.jsonl"),
        lambda folder: tools.fix_files(f"{folder}/train.py", write=True, output=f"{folder}/x.py"),
    ],
)
def test_bad_input_is_said_in_one_line(project: Path, call: Callable[[Path], object]) -> None:
    before = contents(project)
    with pytest.raises(TruetuneError) as raised:
        call(project)
    assert len(str(raised.value).splitlines()) == 1
    assert contents(project) == before

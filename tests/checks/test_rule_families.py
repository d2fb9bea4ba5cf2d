"""Codes of rules: letters by station, an order along the path, and the codes of before for one release."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.checks.fingerprint_findings import accept_known_findings, fingerprints_of_findings
from truetune.checks.former_rule_codes import FORMER_CODES, FORMER_NAMES
from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import all_rules, find_rule, select_rules, station_of_rule
from truetune.checks.rule_families import (
    CODE,
    STATION_BY_LETTERS,
    code_sort_key,
    current_codes_of_former,
    former_code,
    former_names,
    is_rule_code,
)
from truetune.cli import truetune_group

LOADED_FROZEN = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, Trainer

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("base"), "adapter")
Trainer(model=model, train_dataset=rows).train()
"""
STATE_DICT_REPLACED = """\
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM

model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
model.state_dict = lambda: get_peft_model_state_dict(model)
"""


def test_letters_say_the_station() -> None:
    for rule in all_rules():
        code = CODE.fullmatch(rule.code)
        assert code is not None, rule.code
        assert STATION_BY_LETTERS[code["letters"]] == station_of_rule(rule), rule.name()


def test_codes_are_told_apart() -> None:
    codes = [rule.code for rule in all_rules()]
    assert len(set(codes)) == len(codes)
    assert codes == sorted(codes, key=code_sort_key)
    first = CODE.fullmatch(codes[0])
    assert first is not None
    assert STATION_BY_LETTERS[first["letters"]] == "tokenizer"


def test_each_former_code_is_a_rule_of_today() -> None:
    codes = {rule.code for rule in all_rules()}
    assert set(FORMER_CODES.values()) <= codes
    assert len(set(FORMER_CODES.values())) == len(FORMER_CODES)
    for old, new in FORMER_CODES.items():
        assert find_rule(old).code == new
        assert former_code(new) == old


@pytest.mark.parametrize("word", ["TOK001", "tok001", "TT101", "EVAL003", "PREF012"])
def test_codes_are_recognised(word: str) -> None:
    assert is_rule_code(word)


@pytest.mark.parametrize("word", ["loss", "TOK", "pad", "bf16", "LORA16", "4090"])
def test_words_of_a_question_are_no_codes(word: str) -> None:
    assert not is_rule_code(word)


def test_a_beginning_of_former_codes_selects_what_it_selected() -> None:
    by_former = {rule.code for rule in select_rules(("TT10",), ())}
    assert by_former == set(current_codes_of_former("TT10"))
    assert by_former == {new for old, new in FORMER_CODES.items() if old.startswith("TT10")}
    assert {rule.code for rule in select_rules((), ("TT10",))} == {
        rule.code for rule in all_rules()
    } - by_former


def test_a_former_code_is_accepted_with_a_note() -> None:
    shown = CliRunner().invoke(truetune_group, ["rules", "TT101"], standalone_mode=False)
    assert shown.return_value == 0
    assert "note: TT101 is TOK001 now" in shown.stderr
    family = CliRunner().invoke(truetune_group, ["rules", "TT1"], standalone_mode=False)
    assert "note: TT1 means rules of TOK now" in family.stderr
    today = CliRunner().invoke(truetune_group, ["rules", "TOK001"], standalone_mode=False)
    assert "note" not in today.stderr


@pytest.mark.parametrize("of_today", [True, False])
def test_a_comment_may_name_either_code(tmp_path: Path, of_today: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(LOADED_FROZEN, encoding="utf-8")
    (finding,) = lint([path]).findings
    code = finding.code if of_today else former_code(finding.code)
    place = "Trainer(model=model, train_dataset=rows).train()"
    lines = LOADED_FROZEN.replace('"adapter")', f'"adapter")  # truetune: ignore[{code}]')
    lines = lines.replace(place, f"{place}  # truetune: ignore[{code}]")
    path.write_text(lines, encoding="utf-8")
    assert lint([path]).findings == ()


def test_a_baseline_of_before_still_holds(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(LOADED_FROZEN, encoding="utf-8")
    report = lint([path])
    known = {
        one for prints in fingerprints_of_findings(report.findings, former_code) for one in prints
    }
    assert known.isdisjoint(
        one for prints in fingerprints_of_findings(report.findings) for one in prints
    )
    assert accept_known_findings(report, known).findings == ()
    other = {hashlib.sha256(one.encode()).hexdigest()[:16] for one in known}
    assert accept_known_findings(report, other).findings == report.findings


def test_a_former_name_is_accepted_with_a_note() -> None:
    for command in ("rules", "explain"):
        shown = CliRunner().invoke(
            truetune_group, [command, "lora-too-small"], standalone_mode=False
        )
        assert shown.return_value == 0
        assert "note: lora-too-small is lora-rank-1-on-one-projection now" in shown.stderr
    today = CliRunner().invoke(
        truetune_group, ["rules", "lora-rank-1-on-one-projection"], standalone_mode=False
    )
    assert "note" not in today.stderr


def test_a_rule_that_was_renamed_twice_has_both_former_names() -> None:
    assert former_names("answers-mix-languages-unasked") == (
        "answers-in-two-languages",
        "same-questions-answered-in-two-languages",
    )
    assert former_names("pad-is-stop-token") == ()


def test_a_comment_may_name_a_former_name(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(STATE_DICT_REPLACED, encoding="utf-8")
    assert [finding.rule for finding in lint([path]).findings] == ["state-dict-method-replaced"]
    ignored = STATE_DICT_REPLACED.replace(
        "_dict(model)", "_dict(model)  # truetune: ignore[state-dict-overwritten]"
    )
    path.write_text(ignored, encoding="utf-8")
    assert lint([path]).findings == ()


def test_former_names_still_mean_their_rules() -> None:
    for former, name in FORMER_NAMES.items():
        assert find_rule(former) is find_rule(name)
        assert former not in {rule.name() for rule in all_rules()}
        assert [rule.name() for rule in select_rules((former,), ())] == [name]

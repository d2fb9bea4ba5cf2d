"""A name that is nearly right is answered with the right one: commands, options, rules, settings, files, columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import truetune
from truetune.checks.rule_catalogue import find_rule, select_rules
from truetune.cli import truetune_group
from truetune.demo import DATA, TOKENIZER
from truetune.errors import TruetuneError
from truetune.rehearsal.find_command_to_rehearse import find_training_command
from truetune.settings.read_truetune_settings import find_own_settings_and_file, validate_settings
from truetune.settings.suggest_spelling import did_you_mean, did_you_mean_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a file of each kind."""
    for name in ("chats.jsonl", "train.py", "truetune.yaml", "outputs.log", "card.jinja"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("ask", "meant"),
    [
        (lambda: truetune.check("chat.jsonl", TOKENIZER), "chats.jsonl"),
        (lambda: truetune.check(DATA, str(TOKENIZER)[:-1]), TOKENIZER.name),
        (lambda: truetune.lint("trian.py"), "train.py"),
        (lambda: truetune.diagnose("output.log"), "outputs.log"),
        (lambda: truetune.sample("output", data=DATA), "outputs"),
        (lambda: truetune.plan("truetun.yaml"), "truetune.yaml"),
        (lambda: truetune.check(DATA, TOKENIZER, template="crad.jinja"), "card.jinja"),
        (lambda: truetune.check(DATA, TOKENIZER, max_lenght=5), "max_length"),
        (lambda: truetune.check(DATA, TOKENIZER, select=["pad-is-stop-tokn"]), "pad-is-stop-token"),
        (lambda: truetune.check(DATA, TOKENIZER, map={"messages": "mesages"}), "messages"),
        (lambda: find_rule("pad-is-stop-tokn"), "pad-is-stop-token"),
        (lambda: select_rules((), ("train-eval-leek",)), "train-eval-leak"),
        (lambda: find_own_settings_and_file("truetun.yaml", Path()), "truetune.yaml"),
        (lambda: validate_settings({"training": {"lora": {"lora_alhpa": 4}}}, "x"), "lora_alpha"),
        (lambda: validate_settings({"encode": {"pakcing": "none"}}, "x"), "packing"),
        (lambda: find_training_command(("truetun.yaml",), Path()), "truetune.yaml"),
    ],
)
def test_a_name(folder: Path, ask: Callable[[], object], meant: str) -> None:
    with pytest.raises(TruetuneError, match="did you mean") as caught:
        ask()
    assert meant in str(caught.value).partition("did you mean")[2]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["chekc"], "'check'"),
        (["movment"], "'movement'"),
        (["check", "--max-lenght", "5"], "--max-length"),
        (["rehearse", "--batchs", "5", "x.yaml"], "--batches"),
        (["completion", "basch"], "bash"),
        (["init", "--recipe", "lroa"], "lora"),
    ],
)
def test_a_word_of_the_command_line(arguments: list[str], meant: str) -> None:
    done = CliRunner().invoke(truetune_group, arguments, standalone_mode=True)
    assert done.exit_code == 2
    assert meant in done.output


def test_codes_in_any_case_and_the_beginning_of_one() -> None:
    assert find_rule("tt101") is find_rule("TOK001")
    with pytest.raises(TruetuneError, match="truetune rules TOK"):
        find_rule("TOK")


def test_nothing_is_near(tmp_path: Path) -> None:
    assert did_you_mean("zzz", ["lora"]) == ""
    assert did_you_mean_path(tmp_path / "nowhere" / "file") == ""
    assert did_you_mean_path(tmp_path / "zzz") == ""

"""Settings files: which one counts, what stands in it, and what a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune
from truetune.demo import DATA, TOKENIZER
from truetune.errors import SpecError
from truetune.settings.read_truetune_settings import find_own_settings_and_file, validate_settings
from truetune.settings.run_spec import Encoding, RunSpec, Watch


def test_which_file_counts(tmp_path: Path) -> None:
    assert find_own_settings_and_file(None, tmp_path) == ({}, None)
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\nname = 'x'\n")
    assert find_own_settings_and_file(None, tmp_path) == ({}, None)
    project.write_text("[tool.truetune]\nmax-length = 1\n")
    assert find_own_settings_and_file(None, tmp_path) == ({"max_length": 1}, project)
    (tmp_path / "truetune.yaml").write_text("max_length: 2\n")
    assert find_own_settings_and_file(None, tmp_path) == (
        {"max_length": 2},
        tmp_path / "truetune.yaml",
    )
    other = tmp_path / "other.yaml"
    other.write_text("max_length: 3\n")
    assert find_own_settings_and_file(str(other), tmp_path) == ({"max_length": 3}, other)
    assert find_own_settings_and_file(str(project), tmp_path) == ({"max_length": 1}, project)


def test_paths_stand_against_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = tmp_path / "truetune.yaml"
    path.write_text(
        "data: [a.jsonl, /b/*.csv]\neval_data: c.jsonl\ntokenizer: model\nmodel: org/name\n"
    )
    settings, _ = find_own_settings_and_file(None, tmp_path)
    assert settings == {
        "data": [str(tmp_path / "a.jsonl"), "/b/*.csv"],
        "eval_data": str(tmp_path / "c.jsonl"),
        "tokenizer": str(tmp_path / "model"),
        "model": "org/name",
    }


def test_every_setting_can_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "truetune.yaml"
    path.write_text(
        "data: a.jsonl\neval-data: []\ntokenizer: x\nmodel: y\nmedia-dir: p\nformat: alpaca\nmap: {answer:"
        " output}\ntemplate: rag\ntemplate-kwargs: {enable_thinking: false, a-b: 1}\nlearn: {what:"
        " last, tool-calls: false, reasoning: false}\nhistory: single\nmask-by:"
        " response-marker\nresponse-marker: '### Answer:'\nappend-eos: true\nmax-length:"
        " 4096\nselect: TOK\nignore: [TOK001]\nfail-on: warning\nallow-unjudged: true\nencode:"
        " {overflow: split, packing: best-fit, content-specials: text, on-error: skip, file-format:"
        " arrow, loss-weights: true, sources: true, preferences: true, trainer: transformers,"
        " record-root: true}\ntraining: {learning-rate: 2e-5, lora: {r: 8}}\nwatch: {prompts: 4,"
        " every: 10, max-new-tokens: 64, budget: 0.1, parser: json, stop-on: error}\nrehearsal:"
        " false\ntrained-by: trl\ntrainer: {report_to: tensorboard}\n"
    )
    settings, _ = find_own_settings_and_file(None, tmp_path)
    assert set(settings) == set(RunSpec.model_fields)
    spec = validate_settings(settings, "test")
    assert (spec.learn.what, spec.learn.tool_calls, spec.select) == ("last", False, ("TOK",))
    assert spec.template_kwargs == {"enable_thinking": False, "a-b": 1}
    assert set(settings["encode"]) == set(Encoding.model_fields)
    assert (spec.encode.overflow, spec.encode.form) == ("split", "arrow")
    assert set(settings["watch"]) == set(Watch.model_fields)
    assert (spec.watch.stop_on, spec.rehearsal, spec.trainer) == (
        "error",
        False,
        {"report_to": "tensorboard"},
    )


def test_a_key_without_a_value_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "truetune.yaml").write_text("eval_data:\nlearn: {what:}\n")
    assert find_own_settings_and_file(None, tmp_path)[0] == {"learn": {}}
    (tmp_path / "truetune.yaml").write_text("")
    assert find_own_settings_and_file(None, tmp_path)[0] == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokeniser: x", "there is no setting tokeniser; did you mean tokenizer?"),
        (
            "learn: {tool_call: false}",
            "there is no setting learn.tool_call; did you mean tool_calls?",
        ),
        (
            "training: {lora: {alpha: 8}}",
            "there is no setting training.lora.alpha; write training: {lora: {lora_",
        ),
        (
            "zzz: 1",
            (
                "there is no setting zzz; there are data, eval_data, tokenizer, model, format and"
                " 16 more; "
            ),
        ),
        ("use_lora: true", "there is no setting use_lora; write training: {lora: {r: 16}}"),
        (
            "training: {lr: 2e-4}",
            "there is no setting training.lr; write training: {learning_rate: 2e-4}",
        ),
        (
            "learn: everything",
            "learn.what: input should be 'assistant', 'last', 'completion' or 'all'",
        ),
        ("learn: [assistant]", "learn: input should be a valid dictionary"),
        ("max_length: 0", "max_length: input should be greater than 0 (found 0)"),
        ("max_length: 1\nmax-length: 2", "max_length is given twice"),
        ("data: 5", "data: input should be a valid tuple (found 5)"),
        ("- data", "expected settings by name, found ['data']"),
        ("data: 'a", "not YAML: found unexpected end of stream"),
        (
            "data: !!python/object/apply:os.system [ls]",
            "not YAML: could not determine a constructor",
        ),
        ("data: 2024-13-45", "not YAML: month must be in 1..12"),
        ("a: " + "[" * 5_000, "not YAML: "),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "truetune.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as raised:
        find_own_settings_and_file(None, tmp_path)
    assert str(raised.value).startswith(f"{path}: {message}")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: No such file"):
        find_own_settings_and_file(str(tmp_path / "nowhere.yaml"), tmp_path)
    (tmp_path / "latin.yaml").write_bytes("learn: späte".encode("latin-1"))
    with pytest.raises(SpecError, match="not UTF-8"):
        find_own_settings_and_file(str(tmp_path / "latin.yaml"), tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.truetune\n")
    with pytest.raises(SpecError, match="not TOML"):
        find_own_settings_and_file(None, tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    with pytest.raises(SpecError, match=r"there is no \[tool.truetune\] in it"):
        find_own_settings_and_file(str(tmp_path / "pyproject.toml"), tmp_path)


def test_settings_of_the_python_call() -> None:
    report = truetune.check(data=[DATA], tokenizer=TOKENIZER, learn="last", select="LEN")
    assert (report.spec.data, report.spec.learn.what) == ((str(DATA),), "last")
    with pytest.raises(
        SpecError, match=r"truetune.check: there is no setting lern; did you mean learn\?"
    ):
        truetune.check(data=DATA, tokenizer=TOKENIZER, lern="last")
    with pytest.raises(AttributeError):
        truetune.chek  # noqa: B018
    assert truetune.RunSpec is RunSpec

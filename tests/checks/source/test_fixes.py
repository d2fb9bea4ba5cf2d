"""Fixes remove the fault, keep the rest of the file, are done once, and leave code that runs."""

from __future__ import annotations

import difflib
import io
import json
import stat
import tokenize
from pathlib import Path
from typing import Any

import pytest

from tests.checks.source.scripts import SCRIPTS, Script
from tests.source.modules import notebook
from truetune.checks.lint import LintReport, lint
from truetune.source.parsed_source_file import parse_module

IDS = [f"{script.rule}-{i}" for i, script in enumerate(SCRIPTS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny Llama, whose tokenizer adds BOS and has no pad token."""
    pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", "<pad>", "user", "assistant", "a", "b", "c", "d", ":"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True, normalized=False) for word in words[1:4]]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"
    )
    folder = str(tmp_path_factory.mktemp("model"))
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def apply_fixes(path: Path, script: Script) -> LintReport:
    return lint([path], select=[script.rule], fix=True, unsafe=not script.safe)


def shown(text: str, model: str, out: Path) -> Any:
    scope: dict[str, Any] = {"MODEL": model, "OUT": str(out), "__name__": "script"}
    try:
        exec(compile(text, "train.py", "exec"), scope)
    except (TypeError, KeyError) as error:
        return type(error).__name__
    return scope["shown"]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=IDS)
def test_the_corrected_script_runs(script: Script, model: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script.text, encoding="utf-8")
    assert shown(script.text, model, tmp_path / "before") == script.before
    report = apply_fixes(path, script)
    assert [f.rule for change in report.changes for f in change.fixed] == [script.rule]
    assert report.findings == ()
    assert shown(path.read_text(encoding="utf-8"), model, tmp_path / "after") == script.after


@pytest.mark.parametrize("script", SCRIPTS, ids=IDS)
def test_nothing_else_changes(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script.text, encoding="utf-8")
    path.chmod(0o755)
    apply_fixes(path, script)
    once = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert comments(script.text) == comments(once.decode())
    kept = difflib.SequenceMatcher(
        None, script.text, once.decode(), autojunk=False
    ).get_matching_blocks()
    assert sum(block.size for block in kept) > 0.75 * len(script.text)
    assert not apply_fixes(path, script).changes
    assert path.read_bytes() == once


@pytest.mark.parametrize("script", SCRIPTS, ids=IDS)
def test_line_ends_marks_and_cells_are_kept(script: Script, tmp_path: Path) -> None:
    plain, windows, cells = tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.ipynb"
    plain.write_text(script.text, encoding="utf-8")
    windows.write_bytes(b"\xef\xbb\xbf" + script.text.replace("\n", "\r\n").encode())
    cells.write_text(notebook("%pip install trl\n", script.text), encoding="utf-8")
    for path in (plain, windows, cells):
        assert len(apply_fixes(path, script).changes) == 1
    fixed = plain.read_text(encoding="utf-8")
    assert windows.read_bytes() == b"\xef\xbb\xbf" + fixed.replace("\n", "\r\n").encode()
    assert cells.read_text(encoding="utf-8") == notebook("%pip install trl\n", fixed)


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def test_diff_writes_nothing(tmp_path: Path) -> None:
    script = SCRIPTS[2]
    path = tmp_path / "train.py"
    path.write_text(script.text, encoding="utf-8")
    report = lint([path], select=[script.rule], fix=True, diff=True)
    assert path.read_text(encoding="utf-8") == script.text
    assert [f.rule for f in report.findings] == [script.rule]
    diff = report.changes[0].diff
    assert '-        return_tensors="pt"  # tensors\n' in diff
    assert '+        return_tensors="pt",  # tensors\n+        add_special_tokens=False\n' in diff


def test_unsafe_fixes_wait_to_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPTS[0].text, encoding="utf-8")
    assert not lint([path], select=[SCRIPTS[0].rule], fix=True).changes
    assert lint([path], select=[SCRIPTS[0].rule], unsafe=True).changes


def test_encodings_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = SCRIPTS[3].text.replace("\nfrom", "# coding: latin-1\n# käse\nfrom", 1)
    path.write_bytes(text.encode("latin-1"))
    apply_fixes(path, SCRIPTS[3])
    assert "# käse" in path.read_bytes().decode("latin-1")
    assert "return_dict=False" in path.read_bytes().decode("latin-1")


def test_all_fixes_of_one_file_go_together(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("".join(script.text for script in SCRIPTS if script.safe), encoding="utf-8")
    report = lint([path], fix=True)
    rules = {f.rule for f in report.changes[0].fixed}
    assert rules >= {script.rule for script in SCRIPTS if script.safe} - {"labels-copy-input-ids"}
    assert not parse_module(path.read_text(encoding="utf-8"), "train.py").broken
    assert not lint([path], fix=True).changes


def test_a_notebook_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(SCRIPTS[2].text, ascii_only=True, indent=4), encoding="utf-8")
    apply_fixes(path, SCRIPTS[2])
    assert "add_special_tokens=False" in "".join(json.loads(path.read_text())["cells"][1]["source"])

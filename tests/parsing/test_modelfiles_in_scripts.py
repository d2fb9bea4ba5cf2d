"""Modelfiles that shell scripts write from here-documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.parsing.ollama_modelfiles_in_shell_scripts import modelfiles_in_script

BODY = 'FROM ./out/model.gguf\nTEMPLATE """[INST] {{ .Prompt }} [/INST]"""\n'
TRAINING = """
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Meta-Llama-3.1-8B-Instruct")
tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")
rows = rows.map(lambda row: {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)})
trainer = SFTTrainer(model=model, train_dataset=rows, args=SFTConfig(output_dir="out"))
trainer.train()
"""
LLAMA3 = "<|start_header_id|>user<|end_header_id|>\n\n{{ .Prompt }}<|eot_id|>"


def folders(folder: Path, script: str) -> list[str]:
    """What the Modelfiles of a script are made from."""
    path = folder / "to_ollama.sh"
    path.write_text(script, encoding="utf-8")
    found = [modelfile.last("from") for modelfile in modelfiles_in_script(path)]
    return [one.value for one in found if one is not None]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"cat > Modelfile <<EOF\n{BODY}EOF\n", "./out/model.gguf"),
        (f"cat <<'END' > build/Modelfile.q4\n{BODY}END\n", "./out/model.gguf"),
        (f'tee "$DIR/Modelfile" >/dev/null <<EOF\n{BODY}EOF\n', "./out/model.gguf"),
        (f"cat >bot.mf << EOF\n{BODY}EOF\nollama create bot -f bot.mf\n", "./out/model.gguf"),
        ("G=${1:-a.gguf}\ncat > Modelfile <<EOF\nFROM ./$G\nEOF\n", "./a.gguf"),
        ("cat > Modelfile <<EOF\nFROM ${G:-./a.gguf}\nEOF\n", "./a.gguf"),
        ("G=a.gguf\ncat > Modelfile <<'EOF'\nFROM ./$G\nEOF\n", "./$G"),
    ],
)
def test_a_modelfile_is_read(script: str, expected: str, tmp_path: Path) -> None:
    assert folders(tmp_path, script) == [expected]


@pytest.mark.parametrize(
    "script",
    [
        "cat > Dockerfile <<EOF\nFROM python:3.12\nEOF\n",
        "cat > notes.txt <<EOF\nFROM me\nEOF\nollama create bot -f Modelfile\n",
        "# cat > Modelfile <<EOF\nFROM ./a.gguf\n",
        "cat > Modelfile <<EOF\nno instruction\nEOF\n",
    ],
)
def test_other_here_documents_are_left_alone(script: str, tmp_path: Path) -> None:
    assert folders(tmp_path, script) == []


def test_a_finding_names_the_line_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(f"set -e\ncat > Modelfile <<EOF\n{BODY}PARAMETER num_ctx 0\nEOF\n")
    (modelfile,) = modelfiles_in_script(script)
    assert [one.line for one in modelfile.instructions] == [3, 4, 5]


def test_an_unread_script_has_none(tmp_path: Path) -> None:
    assert list(modelfiles_in_script(tmp_path / "gone.sh")) == []


@pytest.mark.parametrize(("template", "count"), [("[INST] {{ .Prompt }} [/INST]", 1), (LLAMA3, 0)])
def test_the_template_of_a_script_is_compared_with_the_training(
    template: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    script = f'cat > Modelfile <<EOF\nFROM ./out.gguf\nTEMPLATE """{template}"""\nEOF\n'
    (tmp_path / "to_ollama.sh").write_text(script, encoding="utf-8")
    found = [one for one in lint([tmp_path]).findings if one.rule == "asked-in-another-form"]
    assert len(found) == count


def test_rules_on_modelfiles_judge_it(tmp_path: Path) -> None:
    script = tmp_path / "to_ollama.sh"
    script.write_text("cat > Modelfile <<EOF\nFROM ./out.gguf\nEOF\n", encoding="utf-8")
    (finding,) = (f for f in lint([script]).findings if f.rule == "modelfile-template-differs")
    assert (finding.cases[0].file, finding.cases[0].line) == (str(script), 2)

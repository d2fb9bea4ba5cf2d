"""Options on a line of their own, which continue no command, and lines that only look so."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

CUT = {
    "no backslash": "torchrun train.py \\\n  --a 1\n  --b 2 \\\n  --c 3\n",
    "a space after it": "torchrun train.py \\ \n  --a 1\n",
    "a comment": "torchrun train.py \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3\n",
    "a comment in words": "python train.py --a 1 \\\n# more\n--learning_rate=1e-4\n",
}
WHOLE = {
    "continued": "torchrun train.py \\\n  --a 1 \\\n  --b 2\n",
    "a text of options": 'ARGS="\n --c 1\n --d 2\n"\npython train.py $ARGS\n',
    "an array": 'ARGS=(\n  --e 1\n  --f 2\n)\npython train.py "${ARGS[@]}"\n',
    "a here-document": "cat <<EOF\nusage:\n--not an option\nEOF\npython train.py --a 1\n",
    "a comment above a command": "# options:\n\npython train.py --a 1\n",
    "patterns of its own options": (
        "case $1 in\n  --deepspeed )\n    shift\n    ;;\n  --model | -m )\n    shift\n    ;;\n"
        "esac\npython train.py --a 1\n"
    ),
    "commented out": "python train.py --a 1\n# --b 2 \\\n# --c 3\n",
    "one quote in a comment": "# it's here\npython train.py \\\n  --a 1\n",
}


def count(folder: Path, text: str) -> int:
    """How many findings the rule has on a script."""
    path = folder / "run.sh"
    path.write_text(text, encoding="utf-8")
    return len(lint([path], select=["CMD192"]).findings)


@pytest.mark.parametrize("name", CUT)
def test_options_that_no_command_gets(tmp_path: Path, name: str) -> None:
    assert count(tmp_path, CUT[name]) == 1


@pytest.mark.parametrize("name", WHOLE)
def test_options_of_a_command(tmp_path: Path, name: str) -> None:
    assert count(tmp_path, WHOLE[name]) == 0


def test_a_dockerfile_takes_comments_inside_of_a_command(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM a\nRUN python t.py \\\n  # more\n  --a 1\n", encoding="utf-8")
    assert list(lint([path], select=["CMD192"]).findings) == []

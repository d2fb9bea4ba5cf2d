"""truetune's own settings as a Config, and files that are no settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.errors import SpecError
from truetune.settings.stacks.read_config_of_any_stack import read_config


def test_places(tmp_path: Path) -> None:
    path = tmp_path / "truetune.yaml"
    path.write_text(
        "data: a.jsonl\nmax-length: 64\ntraining:\n  learning_rate: 2e-5\n  lora: {r: 4}\n"
    )
    found = read_config(tmp_path)
    assert (found.stack, found.limit, found.path) == ("truetune", 64, str(path))
    assert found.spec.data == (str(tmp_path / "a.jsonl"),)
    assert (found.places["max_length"].line, found.places["max_length"].key) == (2, "max-length")
    assert found.places["training.learning_rate"] == (str(path), 4, "training.learning_rate", 3)
    assert found.places["training.lora.r"].column == 10
    assert found.spec.training.learning_rate == 2e-5


def test_pyproject(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.truetune]\nmax-length = 64\n")
    assert read_config(path).limit == 64


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "", "found nothing; expected the settings of truetune"),
        ("a.yaml", "- a\n- b\n", "found no settings by name"),
        ("a.yaml", "just text\n", "found no settings by name"),
        ("a.yaml", "colour: red\nsize: 3\n", "found the keys colour, size; expected"),
        ("a.yaml", "a: 1\n\tb: 2\n", "a.yaml:2: not YAML"),
        ("a.yaml", "learning_rate: !!python/name:os.system\n", "a.yaml:1: not YAML"),
        (
            "truetune.yaml",
            "data: a\nmax_lenght: 3\n",
            "there is no setting max_lenght; did you mean max_length?",
        ),
        ("pyproject.toml", "[tool.ruff]\n", "there is no [tool.truetune] in it"),
    ],
)
def test_what_is_no_settings(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError) as error:
        read_config(tmp_path / name)
    assert said in str(error.value)

"""Each rung keeps the effect, or is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checkpoint import make
from truetune.cli.ladder_of_adapter_effect_command import ladder as command
from truetune.errors import UsageError
from truetune.serving.compare_adapter_forms import Ladder, compare_adapter_forms
from truetune.training.merge import merge


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter on its base, merged as it should be, and with half of its scaling."""
    folder = tmp_path_factory.mktemp("made")
    make.base(folder / "base")
    make.adapter(folder / "base", folder / "lora", lr=3e-2)
    merge(folder / "lora", out=folder / "merged", dtype="float32", prove=False)
    merge(
        halved(folder / "lora", folder / "half"),
        out=folder / "merged-by-half",
        dtype="float32",
        prove=False,
    )
    return folder


def halved(adapter: Path, copy: Path) -> Path:
    shutil.copytree(adapter, copy)
    file = copy / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "lora_alpha": config["lora_alpha"] / 2}))
    return copy


def kept(found: Ladder) -> dict[str, float]:
    return {rung.name.partition(",")[0]: rung.effect.kept for rung in found.rungs if rung.effect}


def test_a_healthy_adapter_keeps_its_effect(made: Path) -> None:
    found = compare_adapter_forms(str(made / "lora"), merged=str(made / "merged"), prompts=2)
    assert list(kept(found)) == [
        "adapter on its base",
        "saved and reloaded",
        "merged in memory",
        "merged",
    ]
    assert all(share == pytest.approx(1, abs=1e-3) for share in kept(found).values())
    assert found.rungs[0].effect is not None
    assert found.rungs[0].effect.size > 0.01
    assert found.culprit is None


def test_the_first_rung_that_loses_it_is_named(made: Path) -> None:
    found = compare_adapter_forms(
        str(made / "lora"),
        merged=str(made / "merged-by-half"),
        exported=[str(made / "base")],
        prompts=2,
    )
    assert 0.2 < kept(found)["merged"] < 0.75
    assert kept(found)["exported"] == pytest.approx(0, abs=1e-3)
    assert found.culprit is not None
    assert found.culprit.name.startswith("merged, ")
    assert "a scaling that is not applied" in found.remedy


def test_an_adapter_that_does_nothing(made: Path, tmp_path: Path) -> None:
    make.adapter(made / "base", tmp_path / "idle", lr=0.0)
    found = compare_adapter_forms(str(tmp_path / "idle"), base=str(made / "base"), prompts=1)
    assert found.culprit is found.rungs[0]
    assert "does not change a single" in found.remedy


def test_the_command(made: Path) -> None:
    arguments = [str(made / "lora"), "--merged", str(made / "base"), "-n", "1"]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert done.return_value == 1
    assert "lost at: merged, " in done.output
    told = CliRunner().invoke(command, [*arguments, "--format", "json"], standalone_mode=False)
    value = json.loads(told.stdout)
    assert value["schema"] == "truetune.ladder/1"
    assert value["culprit"].startswith("merged, ")


def test_other_words(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "merged", tmp_path / "other")
    template = tmp_path / "other/chat_template.jinja"
    template.write_text(
        template.read_text(encoding="utf-8").replace("assistant", "helper"), encoding="utf-8"
    )
    found = compare_adapter_forms(str(made / "lora"), merged=str(tmp_path / "other"), prompts=1)
    assert found.culprit is found.rungs[-1]
    assert "is not the adapter's" in found.remedy


def test_wrong_places(made: Path) -> None:
    with pytest.raises(UsageError, match="is a whole model"):
        compare_adapter_forms(str(made / "lora"), merged=str(made / "half"))
    with pytest.raises(UsageError, match="holds no adapter"):
        compare_adapter_forms(str(made / "base"))
    with pytest.raises(UsageError, match="no such file or folder"):
        compare_adapter_forms(str(made / "lora"), merged="nowhere")

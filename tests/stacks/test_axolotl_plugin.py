"""The Axolotl plugin, loaded and asked by Axolotl's own plugin manager and configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.auditing import tiny
from truetune.errors import TruetuneError
from truetune.settings.stacks.read_config_of_any_stack import read_config

NAME = "truetune.axolotl.AuditPlugin"
YAML = """\
base_model: model
plugins: [truetune.axolotl.AuditPlugin]
truetune_audit: {on_error: warn, batches: 2}
datasets: [{path: chats.jsonl, type: chat_template}]
"""


def test_check_knows_the_plugins_key(tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text(YAML)
    assert not read_config(path).unknown
    path.write_text(YAML.replace("plugins: [truetune.axolotl.AuditPlugin]\n", ""))
    assert [place.key for place in read_config(path).unknown] == ["truetune_audit"]


@pytest.fixture
def manager() -> Any:
    """Axolotl's manager of plugins with this plugin alone; empty again afterwards."""
    base = pytest.importorskip("axolotl.integrations.base", reason="Axolotl is not installed")
    made = base.PluginManager.get_instance()
    made.plugins.clear()
    made.register(NAME)
    yield made
    made.plugins.clear()


def train(manager: Any, settings: Any) -> Any:
    """Train as Axolotl's builder does: a trainer, then the callbacks of the plugins."""
    from axolotl.utils.dict import DictDefault

    trainer = tiny.sft(max_steps=1)
    for callback in manager.add_callbacks_post_trainer(DictDefault(settings), trainer):
        trainer.add_callback(callback)
    trainer.train()
    return trainer


def test_a_run_with_findings_is_stopped(manager: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(manager.plugins) == [NAME]
    with pytest.raises(TruetuneError, match="stopped the run"):
        train(manager, {"truetune_audit": {"fail_on": "warning", "laws": "none", "batches": 1}})
    assert "prompt-supervised" in capsys.readouterr().err


def test_a_run_with_findings_continues_if_they_only_warn(manager: Any) -> None:
    settings = {"fail_on": "warning", "on_error": "warn", "laws": "none", "batches": 1}
    trainer = train(manager, {"truetune_audit": settings})
    assert trainer.state.global_step == 1


def test_axolotl_validates_the_plugins_settings(manager: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    (name,) = manager.get_input_args()
    assert name == "truetune.axolotl.AuditArguments"
    config = pytest.importorskip(
        "axolotl.integrations.config", reason="Axolotl's settings can't be imported here"
    )
    _, settings = config.merge_input_args()
    assert settings.model_fields["truetune_audit"].default is None
    with pytest.raises(pydantic.ValidationError, match="on_eror"):
        settings.model_validate({"base_model": "m", "truetune_audit": {"on_eror": "warn"}})

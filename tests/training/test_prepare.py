"""Tokenizer and model of a run: ids as encoded, special ids aligned, numbers chosen, and said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.auditing.tiny import model as tiny
from tests.parts import folder
from truetune.demo import TOKENIZER
from truetune.errors import TokenizerError, UsageError
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Lora, Training
from truetune.training import load_base_model
from truetune.training.make_or_load_adapter import add_adapter
from truetune.training.prepare_model import PreparedModel, prepare_model
from truetune.training.prepare_tokenizer import (
    TRIAL_TEXTS,
    first_text_with_different_ids,
    prepare_tokenizer,
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's tokenizer with a tiny model in float32."""
    made = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(TOKENIZER, made)
    special = load_tokenizer(str(made)).special
    tiny(
        eos_token_id=special["eos"].id, bos_token_id=None, pad_token_id=special["pad"].id
    ).save_pretrained(made)
    return made


def ready(of: Path, *, template: str | None = None, **training: Any) -> PreparedModel:
    spec = RunSpec(tokenizer=str(of), template=template, training=Training(**training))
    return prepare_model(spec, spec.training)


def said(made: PreparedModel) -> dict[str, Any]:
    return {choice.setting: choice.value for choice in made.choices}


def copied(of: Path, to: Path, **changes: dict[str, Any]) -> Path:
    """A copy of a folder, with values of its JSON files changed; by the file's name without its ending."""
    shutil.copytree(of, to)
    for name, values in changes.items():
        path = to / f"{name}.json"
        held = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps({**held, **values}))
    return to


def test_all_weights_are_trained_in_float32(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "bf16"
    shutil.copytree(home, other)
    half: Any = tiny()
    half.to(torch.bfloat16).save_pretrained(other)
    made = ready(other)
    assert made.model.dtype == torch.float32
    assert made.peft is None


@pytest.mark.parametrize("native", [True, False])
def test_a_frozen_base_is_rounded_where_that_is_faster(
    native: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_base_model, "has_hardware_bf16", lambda: native)
    made = ready(home, lora=Lora(), dtype="auto")
    assert made.model.dtype == (torch.bfloat16 if native else torch.float32)
    assert ("dtype" in said(made)) == native
    assert ready(home, lora=Lora(), dtype="float32").model.dtype == torch.float32


def test_a_base_of_its_own_numbers_keeps_them(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "half"
    shutil.copytree(home, other)
    half: Any = tiny()
    half.to(torch.float16).save_pretrained(other)
    assert ready(other, lora=Lora(), dtype="auto").model.dtype == torch.float16


def test_a_pad_that_is_a_stop_token_is_replaced_and_the_pad_is_known_everywhere(
    home: Path, tmp_path: Path
) -> None:
    stop = load_tokenizer(str(home)).special["eos"].token
    names = ("tokenizer_config", "special_tokens_map")
    made = ready(copied(home, tmp_path / "x", **{name: {"pad_token": stop} for name in names}))
    pad = made.tokenizer.pad_token_id
    assert pad not in made.stops
    assert pad == made.model.config.pad_token_id == made.model.generation_config.pad_token_id
    assert said(made)["pad_token"] == made.tokenizer.pad_token


def test_the_saved_model_stops_at_what_is_trained_and_at_what_was_published(
    home: Path, tmp_path: Path
) -> None:
    trained = load_tokenizer(str(home)).special["eos"].id
    made = ready(
        copied(home, tmp_path / "x", generation_config={"eos_token_id": 7, "do_sample": False})
    )
    assert made.model.generation_config.eos_token_id == sorted({7, trained})
    assert made.stops == {7, trained}
    made.model.save_pretrained(tmp_path / "saved")
    again = transformers.GenerationConfig.from_pretrained(str(tmp_path / "saved"))
    assert again.eos_token_id == sorted({7, trained})
    assert made.tokenizer.eos_token_id == trained == made.model.config.eos_token_id


def test_a_generation_config_that_cannot_be_saved_is_fixed(home: Path, tmp_path: Path) -> None:
    made = ready(
        copied(home, tmp_path / "x", generation_config={"do_sample": False, "temperature": 0.6})
    )
    assert said(made)["generation_config.do_sample"] is True
    made.model.save_pretrained(tmp_path / "saved")


def test_a_template_that_is_trained_is_saved_with_the_tokenizer(home: Path, tmp_path: Path) -> None:
    source = (
        (home / "chat_template.jinja").read_text()
        if (home / "chat_template.jinja").is_file()
        else None
    )
    source = source or load_tokenizer(str(home)).templates["default"]
    path = tmp_path / "other.jinja"
    path.write_text("{# other #}" + source)
    made = ready(home, template=str(path))
    made.tokenizer.save_pretrained(tmp_path / "saved")
    again = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "saved"))
    assert again.chat_template == "{# other #}" + source


def test_an_ordinary_run_has_a_short_log(home: Path) -> None:
    assert [choice.setting for choice in ready(home).choices] == ["attention"]
    assert [choice.setting for choice in ready(home, lora=Lora(), dtype="float32").choices] == [
        "attention"
    ]


def test_what_is_named_wrongly_is_said_in_one_line(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no_such_type"):
        ready(home, lora=Lora(), dtype="no_such_type")
    with pytest.raises(UsageError, match=r"training\.adapter"):
        ready(home, adapter=str(tmp_path))
    with pytest.raises(UsageError, match="can't be loaded"):
        ready(TOKENIZER)
    with pytest.raises(UsageError, match=r"training\.added_tokens"):
        ready(home, special_tokens={"pad_token": "<nowhere>"})
    adapter = copied(TOKENIZER, tmp_path / "adapter", adapter_config={})
    (adapter / "config.json").unlink(missing_ok=True)
    with pytest.raises(UsageError, match="is an adapter"):
        ready(adapter)


def test_an_adapter_is_made_as_it_is_described(home: Path) -> None:
    lora = Lora(
        r=4, target_modules=("q_proj",), use_dora=True, use_rslora=True, init_lora_weights="olora"
    )
    found = ready(home, lora=lora).peft
    assert (found.r, found.target_modules, found.use_dora, found.use_rslora) == (
        4,
        {"q_proj"},
        True,
        True,
    )
    assert found.init_lora_weights == "olora"
    assert found.trainable_token_indices is None


def test_checkpointing_reaches_an_adapter(home: Path) -> None:
    made = ready(home, lora=Lora(), gradient_checkpointing=True)
    assert made.model.get_input_embeddings()(torch.tensor([[5]])).requires_grad


def test_an_adapter_that_does_not_fit_is_said(home: Path) -> None:
    made = ready(home, lora=Lora(target_modules=("no_such_layer",)))
    with pytest.raises(UsageError, match=r"training\.lora"):
        add_adapter(made.model, made.peft)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_quantized_weights_need_a_gpu(home: Path) -> None:
    with pytest.raises(UsageError, match="needs a GPU"):
        ready(home, lora=Lora(), load_in=4)


@pytest.mark.parametrize("name", ["mistral-7b-v0.3", "smollm2", "gpt2"])
def test_a_real_tokenizer_pads_with_no_stop_token_and_keeps_its_ids(
    name: str, tmp_path: Path
) -> None:
    probes = load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder(name))))
    tokenizer, _ = prepare_tokenizer(probes, RunSpec())
    assert tokenizer.pad_token_id not in {stop.id for stop in probes.stops}
    assert tokenizer.padding_side == "right"
    tokenizer.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert first_text_with_different_ids(again, probes, TRIAL_TEXTS) is None
    assert again.pad_token_id == tokenizer.pad_token_id


def test_a_class_that_rebuilds_its_tokenizer_is_not_taken(tmp_path: Path) -> None:
    """Phi-3 as it is published: transformers 5 gives `LlamaTokenizer` other ids for leading spaces."""
    path = copied(
        folder("phi3"), tmp_path / "phi3", tokenizer_config={"tokenizer_class": "LlamaTokenizer"}
    )
    published = transformers.AutoTokenizer.from_pretrained(str(path))
    probes = load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(path)))
    assert first_text_with_different_ids(published, probes, TRIAL_TEXTS) is not None
    tokenizer, choices = prepare_tokenizer(probes, RunSpec())
    assert first_text_with_different_ids(tokenizer, probes, TRIAL_TEXTS) is None
    assert "tokenizer class" in {choice.setting for choice in choices}
    tokenizer.save_pretrained(tmp_path / "saved")
    assert (
        first_text_with_different_ids(
            transformers.AutoTokenizer.from_pretrained(str(tmp_path / "saved")), probes, TRIAL_TEXTS
        )
        is None
    )


def test_a_tokenizer_that_no_class_gives_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(TOKENIZER)))
    monkeypatch.setattr(
        "truetune.training.prepare_tokenizer.first_text_with_different_ids", lambda *_: " text"
    )
    with pytest.raises(TokenizerError, match=r"no class .* gives the ids"):
        prepare_tokenizer(probes, RunSpec())

"""Tokens that a model has no row for: added, given a row, trained, saved, and loaded again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

from tests.auditing.tiny import model as tiny
from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Lora, Training
from truetune.training.enlarge_embeddings import enlarge_embeddings
from truetune.training.prepare_model import PreparedModel, prepare_model
from truetune.training.supervised_token_losses import compute_token_losses
from truetune.training.write_extended_tokenizer import extend_tokenizer_and_give_settings

NEW = "<step>"


def spec_of(tmp_path: Path, *, tied: bool = True, rows: int = 0, **training: Any) -> RunSpec:
    made = tmp_path / "base"
    shutil.copytree(TOKENIZER, made)
    tiny(rows, tie_word_embeddings=tied).save_pretrained(made)
    spec = RunSpec(
        tokenizer=str(made), training=Training(added_tokens=(NEW,), dtype="float32", **training)
    )
    return extend_tokenizer_and_give_settings(spec, tmp_path / "tokenizer")


def ready(spec: RunSpec) -> PreparedModel:
    return prepare_model(spec, spec.training)


def rows_of(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights in effect of the embedding and of the head."""
    found = []
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        wrapped = hasattr(layer, "token_adapter")
        found.append(
            layer.token_adapter.get_merged_weights(["default"]) if wrapped else layer.weight
        )
    return found[0].detach().clone(), found[1].detach().clone()


def step(model: Any, id: int) -> None:
    """One step of the optimizer on a row that holds the id, as context and as target."""
    model.train()
    ids = torch.tensor([[5, id, 6, id, 7]])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    compute_token_losses(model, {"input_ids": ids, "labels": ids}).losses.mean().backward()
    optimizer.step()
    model.eval()


def test_added_tokens_stand_in_a_tokenizer_of_the_run_and_encode_as_one(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert spec.tokenizer == str(tmp_path / "tokenizer")
    assert spec.model == str(tmp_path / "base")
    tokenizer = load_tokenizer(str(spec.tokenizer), model=spec.model)
    id = tokenizer.backend.token_to_id(NEW)
    assert id is not None
    assert tokenizer.backend.encode(f"a{NEW} b", add_special_tokens=False).ids.count(id) == 1
    assert id not in tokenizer.control
    assert (
        transformers.AutoTokenizer.from_pretrained(str(spec.tokenizer)).convert_tokens_to_ids(NEW)
        == id
    )
    assert extend_tokenizer_and_give_settings(spec, tmp_path / "again") is spec


def test_a_token_that_was_not_encoded_with_is_refused(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    with pytest.raises(UsageError, match=NEW):
        ready(spec.model_copy(update={"tokenizer": str(tmp_path / "base")}))


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_are_trained_saved_and_loaded_with_the_adapter(tied: bool, tmp_path: Path) -> None:
    made = ready(spec_of(tmp_path, tied=tied, lora=Lora(target_modules="all-linear")))
    id = made.tokenizer.convert_tokens_to_ids(NEW)
    model = peft.get_peft_model(made.model, made.peft)
    before = rows_of(model)
    assert len(before[0]) % 64 == 0
    step(model, id)
    after = rows_of(model)
    for old, new in zip(before, after, strict=True):
        moved = (old != new).any(-1).nonzero().flatten().tolist()
        assert moved == [id]
    model.save_pretrained(tmp_path / "adapter")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        str(tmp_path / "base"), dtype="float32"
    )
    enlarge_embeddings(again, len(made.tokenizer))
    loaded = peft.PeftModel.from_pretrained(again, str(tmp_path / "adapter"))
    for saved, found in zip(after, rows_of(loaded), strict=True):
        assert torch.equal(saved, found)
    ids = torch.tensor([[5, id, 6]])
    assert torch.equal(model(ids).logits, loaded(ids).logits)


def test_all_weights_hold_the_new_rows(tmp_path: Path) -> None:
    made = ready(spec_of(tmp_path))
    id = made.tokenizer.convert_tokens_to_ids(NEW)
    before = made.model.get_input_embeddings().weight[id].detach().clone()
    step(made.model, id)
    assert (made.model.get_input_embeddings().weight[id] != before).all()


def test_new_rows_are_near_the_mean_and_always_the_same() -> None:
    first: Any = tiny()
    second: Any = tiny()
    old = first.get_input_embeddings().weight.detach().clone()
    state = torch.get_rng_state()
    enlarge_embeddings(first, len(old) + 1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(9)
    enlarge_embeddings(second, len(old) + 1)
    new = first.get_input_embeddings().weight.detach()
    assert torch.equal(new, second.get_input_embeddings().weight)
    assert torch.equal(new[: len(old)], old)
    assert torch.allclose(new[len(old) :], old.mean(0).expand(len(new) - len(old), -1), atol=1e-3)
    assert not torch.equal(first.lm_head.weight[-1], first.lm_head.weight[0])


def test_a_vocabulary_with_free_rows_is_not_resized_and_its_new_rows_are_trained(
    tmp_path: Path,
) -> None:
    many = len(transformers.AutoTokenizer.from_pretrained(str(TOKENIZER))) + 100
    made = ready(spec_of(tmp_path, rows=many, lora=Lora(target_modules="all-linear")))
    assert made.model.get_input_embeddings().num_embeddings == many
    assert "embedding rows" not in {choice.setting for choice in made.choices}
    id = made.tokenizer.convert_tokens_to_ids(NEW)
    assert made.peft.trainable_token_indices == {"embed_tokens": [id]}


def test_a_whole_embedding_that_is_trained_anyway_is_left_so(tmp_path: Path) -> None:
    made = ready(
        spec_of(
            tmp_path,
            lora=Lora(target_modules="all-linear", modules_to_save=("embed_tokens", "lm_head")),
        )
    )
    assert made.peft.trainable_token_indices is None
    assert made.peft.modules_to_save == ["embed_tokens", "lm_head"]


def test_training_goes_on_from_an_adapter(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, lora=Lora(r=4, target_modules="all-linear"))
    made = ready(spec)
    model = peft.get_peft_model(made.model, made.peft)
    id = made.tokenizer.convert_tokens_to_ids(NEW)
    step(model, id)
    model.save_pretrained(tmp_path / "adapter")
    training = spec.training.model_copy(update={"adapter": str(tmp_path / "adapter"), "lora": None})
    again = ready(spec.model_copy(update={"training": training}))
    assert again.peft is None
    assert again.model.peft_config["default"].r == 4
    ids = torch.tensor([[5, id, 6]])
    assert torch.equal(again.model.eval()(ids).logits, model(ids).logits)
    trained = [name for name, p in again.model.named_parameters() if p.requires_grad]
    assert any("lora_A" in name for name in trained)
    assert any("trainable_tokens_delta" in name for name in trained)

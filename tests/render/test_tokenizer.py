"""Facts about real tokenizer folders, read without transformers, and equal to what transformers says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import parts
from truetune.demo import TOKENIZER
from truetune.errors import TokenizerError
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

PADS = {
    "llama2-chat": "<unk>",
    "llama3-instruct": "<|reserved_special_token_0|>",
    "llama3.1-instruct": "<|finetune_right_pad_id|>",
    "mistral-7b-v0.1": "<unk>",
    "mistral-7b-v0.3": "<unk>",
    "mistral-nemo": "<pad>",
    "qwen2.5-instruct": "<|endoftext|>",
    "qwen3": "<|endoftext|>",
    "gemma2": "<pad>",
    "gemma3": "<pad>",
    "phi4": "<|dummy_85|>",
    "deepseek-v3": "<｜▁pad▁｜>",
    "gpt-oss": "<|endoftext|>",
    "smollm2": "<|endoftext|>",
    "gpt2": None,
}
TERMINATORS = {
    "llama2-chat": "</s>",
    "llama3-instruct-launch": "<|eot_id|>",
    "qwen2.5-base": "<|im_end|>",
    "gemma3": "<end_of_turn>",
    "gemma4": "<turn|>",
    "phi3": "<|end|>",
    "phi4": "<|im_end|>",
    "gpt-oss": "<|return|>",
    "deepseek-r1": "<｜end▁of▁sentence｜>",
}


@pytest.mark.parametrize("family", parts.FAMILIES)
def test_as_transformers_says(family: str) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    folder = parts.folder(family)
    mine, theirs = (
        load_tokenizer(str(folder)),
        transformers.PreTrainedTokenizerFast.from_pretrained(str(folder)),
    )
    for name in ("bos", "eos", "pad", "unk"):
        token = mine.special.get(name)
        assert (token.id if token else None) == getattr(theirs, f"{name}_token_id")
    text = "Hello world, 123 naïve  日本\n"
    assert mine.backend.encode(text, add_special_tokens=False).ids == theirs.encode(
        text, add_special_tokens=False
    )
    assert mine.adds_bos == (theirs("x").input_ids[0] == theirs.bos_token_id)
    assert mine.templates.get("default") == theirs.chat_template
    assert mine.padding_side == theirs.padding_side
    assert mine.vocabulary >= len(theirs)


@pytest.mark.parametrize("family", PADS)
def test_the_right_pad(family: str) -> None:
    tokenizer = load_tokenizer(str(parts.folder(family)))
    pad, reason = choose_pad_token(tokenizer, make_probes(tokenizer, RunSpec()).stops)
    assert (pad.token if pad else None) == PADS[family], reason


def test_phi3_gets_a_pad_that_ends_nothing() -> None:
    tokenizer = load_tokenizer(str(parts.folder("phi3")))
    stops = make_probes(tokenizer, RunSpec()).stops
    pad, _ = choose_pad_token(tokenizer, stops)
    assert pad is not None
    assert pad.id not in {stop.id for stop in stops}


@pytest.mark.parametrize("family", TERMINATORS)
def test_the_terminator_of_the_template(family: str) -> None:
    terminator = make_probes(load_tokenizer(str(parts.folder(family))), RunSpec()).terminator
    assert terminator is not None
    assert terminator.token is not None
    assert terminator.token.token == TERMINATORS[family]


def copy(folder: Path) -> Path:
    shutil.copytree(TOKENIZER, folder)
    return folder


def test_files_and_their_order(tmp_path: Path) -> None:
    folder = copy(tmp_path / "t")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("R")
    file = (folder / "chat_template.jinja").read_text()
    assert load_tokenizer(str(folder)).templates == {"default": file, "rag": "R"}
    (folder / "chat_template.jinja").unlink()
    (folder / "additional_chat_templates" / "rag.jinja").unlink()
    assert load_tokenizer(str(folder)).templates == {"default": "D", "tool_use": "T"}
    assert load_tokenizer(str(folder / "tokenizer.json")).folder == folder


def test_the_local_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "models--me--shop"
    copy(model / "snapshots" / "abc")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert load_tokenizer("me/shop").folder == model / "snapshots" / "abc"


def test_embedding_rows_of_real_weights() -> None:
    folder = parts.model()
    assert load_tokenizer(str(folder)).embedding_rows == 49152


def test_bad_folders_say_what_to_do(tmp_path: Path) -> None:
    folder = copy(tmp_path / "model")
    with pytest.raises(TokenizerError, match=r"did you mean .*model\?"):
        load_tokenizer(str(tmp_path / "modle"))
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: not JSON"):
        load_tokenizer(str(folder))
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(TokenizerError, match="expected a JSON object, found list"):
        load_tokenizer(str(folder))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: not a tokenizer"):
        load_tokenizer(str(folder))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(TokenizerError, match="is an adapter"):
        load_tokenizer(str(tmp_path / "adapter"))
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(TokenizerError, match="is a file"):
        load_tokenizer(str(tmp_path / "file.txt"))


def test_a_large_tokenizer_is_read_again_after_a_change_alone(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(parts.folder("smollm2"), tmp_path / "t"))
    first, second = load_tokenizer(str(folder)), load_tokenizer(str(folder))
    assert second.backend is first.backend
    second.config["model_max_length"] = 7
    assert load_tokenizer(str(folder)).config == first.config != second.config
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}', encoding="utf-8")
    changed = load_tokenizer(str(folder))
    assert changed.generation_config == {"eos_token_id": 0} != first.generation_config
    changed.backend.add_tokens(["<zork>"])
    assert load_tokenizer(str(folder)).backend.token_to_id("<zork>") is None
    (folder / "model.safetensors").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TokenizerError, match="not a whole safetensors file"):
        load_tokenizer(str(folder))

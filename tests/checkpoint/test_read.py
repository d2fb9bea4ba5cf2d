"""Reading folders: what is found, and what is wrong but not raised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkpoint import make
from truetune.checkpoint.adapter_tensor_names import (
    find_replacement_tensors,
    group_low_rank_tensors,
    parse_adapter_tensors,
)
from truetune.checkpoint.base_fingerprint import (
    base_differences_and_compared_count,
    fingerprint_base,
)
from truetune.checkpoint.load_checkpoint import is_checkpoint, read_checkpoint
from truetune.errors import UsageError


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("read")
    make.base(folder / "base")
    make.adapter(folder / "base", folder / "lora", modules_to_save=["lm_head"])
    make.llama(hidden_size=64).save_pretrained(folder / "sharded", max_shard_size="100KB")
    return folder


def test_a_model(folders: Path) -> None:
    found = read_checkpoint(folders / "base")
    assert (found.kind, found.base, found.faults) == ("model", None, ())
    assert len(found.tensors) == 2 * 9 + 3
    assert found.config["model_type"] == "llama"


def test_an_adapter_finds_its_base(folders: Path) -> None:
    found = read_checkpoint(folders / "lora")
    assert found.kind == "adapter"
    assert found.base is not None
    assert found.base.folder == folders / "base"
    assert set(find_replacement_tensors(found.tensors)) == {"lm_head.weight"}
    assert len(group_low_rank_tensors(found.tensors)) == 4
    assert {piece.module.rpartition(".")[2] for piece in parse_adapter_tensors(found.tensors)} == {
        "q_proj",
        "v_proj",
        "lm_head",
    }


def test_shards(folders: Path) -> None:
    found = read_checkpoint(folders / "sharded")
    assert len(found.weights.files) > 2
    assert (len(found.tensors), found.faults) == (21, ())


def test_shards_that_are_missing(folders: Path, tmp_path: Path) -> None:
    for path in (folders / "sharded").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    (tmp_path / index["weight_map"]["lm_head.weight"]).unlink()
    index["weight_map"]["model.layers.9.up.weight"] = index["weight_map"]["model.norm.weight"]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    faults = [fault.text for fault in read_checkpoint(tmp_path).faults]
    assert len(faults) == 2
    assert "missing" in faults[0]
    assert "model.layers.9.up.weight" in faults[1]


@pytest.mark.parametrize(
    "name", ["../base/model.safetensors", "/etc/passwd", "a/b.safetensors", "model.bin", ".."]
)
def test_an_index_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    found = read_checkpoint(tmp_path)
    assert not found.weights.files
    assert "weight_map" in found.faults[0].text


@pytest.mark.parametrize(
    "body", ["[1]", "{", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "[" * 99_999]
)
def test_broken_json_is_a_fault(body: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(body, encoding="latin-1")
    (fault,) = read_checkpoint(tmp_path).faults
    assert fault.file == "config.json"


def test_no_checkpoint(tmp_path: Path) -> None:
    assert not is_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="holds no config"):
        read_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        read_checkpoint(tmp_path / "a")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="hub cache"):
        read_checkpoint(tmp_path, base="acme/none")


def test_a_model_of_the_hub_cache(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--acme--base"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    (model / "snapshots").mkdir()
    (model / "snapshots" / "abc").symlink_to(folders / "base")
    found = read_checkpoint(folders / "lora", base="acme/base")
    assert found.base is not None
    assert len(found.base.tensors) == 21


def test_a_fingerprint_knows_its_base(folders: Path, tmp_path: Path) -> None:
    record = json.loads(json.dumps(fingerprint_base(read_checkpoint(folders / "base"))))
    texts, compared = base_differences_and_compared_count(record, read_checkpoint(folders / "base"))
    assert (texts, compared) == ([], 21)
    make.llama(seed=1).save_pretrained(tmp_path)
    texts, _ = base_differences_and_compared_count(record, read_checkpoint(tmp_path))
    assert len(texts) == 16
    assert (
        base_differences_and_compared_count(
            {"format": 1, "tensors": {"a": 1, "b": ["F32"]}}, read_checkpoint(tmp_path)
        )[1]
        == 2
    )

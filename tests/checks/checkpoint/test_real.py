"""Rules on checkpoints that transformers and peft wrote: silent on healthy ones, and each fault found by its rule."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import parts
from tests.checkpoint import make
from truetune.checkpoint.base_fingerprint import write_base_fingerprint
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.inspect_checkpoint import checkpoint_report

BASES: dict[str, dict[str, Any]] = {
    "base": {},
    "tied": {"tie_word_embeddings": True},
    "bf16": {"dtype": "bfloat16"},
    "fp16": {"dtype": "float16"},
}
LORAS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("base", {}),
    "lora-bf16": ("bf16", {"dtype": "bfloat16"}),
    "lora-tied": ("tied", {}),
    "rslora": ("base", {"use_rslora": True}),
    "dora": ("base", {"use_dora": True}),
    "ranks": (
        "base",
        {
            "target_modules": "all-linear",
            "rank_pattern": {"q_proj": 2},
            "alpha_pattern": {"q_proj": 4},
        },
    ),
    "pattern": ("base", {"target_modules": r".*\.(q_proj|k_proj)"}),
    "one-layer": ("base", {"layers_to_transform": [1]}),
    "heads": ("base", {"modules_to_save": ["embed_tokens", "lm_head"]}),
    "head-tied": ("tied", {"modules_to_save": ["lm_head"]}),
    "heads-tied": (
        "tied",
        {"modules_to_save": ["embed_tokens", "lm_head"], "ensure_weight_tying": True},
    ),
    "rows": ("base", {"trainable_token_indices": {"embed_tokens": [5, 6]}}),
    "rows-tied": ("tied", {"trainable_token_indices": [5, 6]}),
    "on-embedding": ("base", {"target_modules": ["q_proj", "embed_tokens", "lm_head"]}),
    "bias": ("base", {"bias": "all", "lora_bias": True}),
    "pissa": ("base", {"init_lora_weights": "pissa"}),
}
MERGED: dict[str, tuple[str, dict[str, Any]]] = {
    "merged": ("base", {}),
    "merged-bf16": ("bf16", {"dtype": "bfloat16", "lr": 3e-2, "count": 4}),
    "merged-tied": ("tied", {"trainable_token_indices": [5, 6]}),
    "merged-head-tied": ("tied", {"modules_to_save": ["lm_head"]}),
    "merged-all": ("base", {"target_modules": "all-linear"}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All checkpoints, made once."""
    folder = tmp_path_factory.mktemp("made")
    for name, settings in BASES.items():
        make.base(folder / name, **settings)
    for name, (base, settings) in LORAS.items():
        make.adapter(folder / base, folder / name, **settings)
    for name, (base, settings) in MERGED.items():
        make.adapter(folder / base, folder / name, merged=True, **settings)
    model = make.steps(make.llama())
    model.save_pretrained(folder / "tuned", max_shard_size="200KB")
    make.with_tokenizer(folder / "tuned")
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a checkpoint that may be broken; adapters keep the path of their base."""
    return lambda name: Path(shutil.copytree(made / name, tmp_path / name))


def found(folder: Path, base: Path | None = None) -> dict[str, str]:
    """Rule -> severity, notes left out"""
    report = checkpoint_report(folder, base=base)
    return {f.rule: f.severity for f in report.findings if f.severity != "info"}


def tensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """Change the tensors of a folder with one file."""
    from safetensors.torch import save_file

    (path,) = folder.glob("*.safetensors")
    save_file(change(tensors(path)), path)
    return folder


@pytest.mark.parametrize("name", [*BASES, *LORAS])
def test_healthy_bases_and_adapters(name: str, made: Path) -> None:
    assert found(made / name) == {}


@pytest.mark.parametrize(
    ("name", "base"), [*((name, base) for name, (base, _) in MERGED.items()), ("tuned", "base")]
)
def test_healthy_models(name: str, base: str, made: Path) -> None:
    assert found(made / name) == {}
    assert found(made / name, made / base) == {}


def test_gpt2_leaves_its_prefix_out(tmp_path: Path) -> None:
    """The published file of GPT-2 names `h.0`, a model in memory `transformer.h.0`; its matrices are transposed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=make.VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "base")
    make.adapter(
        tmp_path / "base", tmp_path / "lora", target_modules=["c_attn"], fan_in_fan_out=True
    )
    assert found(tmp_path / "base") == {}
    assert found(tmp_path / "lora") == {}
    rewrite(
        tmp_path / "base",
        lambda t: {name.removeprefix("transformer."): value for name, value in t.items()},
    )
    assert found(tmp_path / "lora") == {}


def test_other_families(tmp_path: Path) -> None:
    """Hybrid stacks, experts, several parts, an encoder with a decoder."""
    import transformers

    small: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_hidden_layers": 4,
        "pad_token_id": 0,
    }
    experts: dict[str, Any] = {
        "moe_intermediate_size": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    }
    configs = {
        "Qwen3ForCausalLM": transformers.Qwen3Config(**small),
        "Qwen3MoeForCausalLM": transformers.Qwen3MoeConfig(**small, **experts, mlp_only_layers=[0]),
        "Gemma3ForCausalLM": transformers.Gemma3TextConfig(**small),
        "GPTNeoXForCausalLM": transformers.GPTNeoXConfig(**{**small, "num_key_value_heads": 4}),
        "T5ForConditionalGeneration": transformers.T5Config(vocab_size=128, d_model=32, d_ff=32, num_layers=2,
                                                            num_heads=4, d_kv=8),
        "BertForSequenceClassification": transformers.BertConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2,
                                                                 num_attention_heads=4, intermediate_size=32),
        "WhisperForConditionalGeneration": transformers.WhisperConfig(
            vocab_size=128, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=0,
        ),
        "Lfm2ForCausalLM": transformers.Lfm2Config(**small, layer_types=["conv", "full_attention"] * 2),
    }  # fmt: skip
    for name, config in configs.items():
        getattr(transformers, name)(config).save_pretrained(tmp_path / name)
        assert found(tmp_path / name) == {}, name


def test_a_real_model() -> None:
    model = parts.model()
    assert checkpoint_report(model).findings == ()


@pytest.mark.parametrize("task", ["SEQ_CLS", None])
def test_head_of_a_classifier(task: str | None, made: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(made / "base", num_labels=2)
    tuned = get_peft_model(model, LoraConfig(task_type=task, target_modules=["q_proj"]))
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    tuned.save_pretrained(str(tmp_path))
    assert found(tmp_path) == ({} if task else {"head-not-saved": "error"})
    rewrite(tmp_path, lambda t: {k: v for k, v in t.items() if "score" not in k})
    assert found(tmp_path) == {"head-not-saved": "error"}


def test_head_of_a_reward_model(copy: Callable[[str], Path]) -> None:
    folder = copy("lora")
    state = {"global_step": 2, "log_history": [{"mean_reward": 0.1, "margin": 0.2, "step": 1}]}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    assert found(folder) == {"head-not-saved": "error"}


def test_an_adapter_without_effect(copy: Callable[[str], Path]) -> None:
    folder = rewrite(
        copy("lora"), lambda t: {k: v * (0 if "lora_B" in k else 1) for k, v in t.items()}
    )
    assert found(folder) == {"adapter-file-empty": "error"}
    rewrite(
        copy("rslora"),
        lambda t: {k: v * (0 if "layers.1" in k and "lora_B" in k else 1) for k, v in t.items()},
    )
    assert found(folder.parent / "rslora") == {"adapter-file-empty": "warning"}
    assert found(rewrite(copy("dora"), lambda _: {})) == {"adapter-file-empty": "error"}


def test_an_empty_pickle(copy: Callable[[str], Path]) -> None:
    folder = copy("lora")
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(bytes(443))
    assert found(folder) == {"adapter-file-empty": "error", "weights-are-pickle": "warning"}
    assert "443 bytes" in checkpoint_report(folder).findings[0].message


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.replace("model.model.", "model._orig_mod.model."),
        lambda name: name.removeprefix("base_model.model."),
        lambda name: f"base_model.model.{name}",
        lambda name: name.replace("lora_A.", "lora_A.default."),
        lambda name: name.replace("model.layers", "model.language_model.layers"),
    ],
)
def test_names_that_do_not_fit(rename: Callable[[str], str], copy: Callable[[str], Path]) -> None:
    folder = rewrite(copy("lora"), lambda t: {rename(name): value for name, value in t.items()})
    assert found(folder)["adapter-keys-do-not-match"] == "error"


def test_half_of_the_targets(made: Path, tmp_path: Path) -> None:
    targets = ["q_proj", "v_prjo", "gate_up_proj"]
    make.adapter(made / "base", tmp_path / "half", target_modules=targets)
    assert found(tmp_path / "half") == {"lora-targets-half-matched": "warning"}
    (finding,) = checkpoint_report(tmp_path / "half").findings
    assert (finding.count, finding.total) == (2, 3)
    assert any("did you mean v_proj?" in case.text for case in finding.cases)


def test_a_rank_that_differs(copy: Callable[[str], Path]) -> None:
    folder = copy("lora")
    make.edit(folder / "adapter_config.json", r=8)
    assert found(folder) == {"adapter-rank-differs": "error"}


def test_pairs_and_modules_that_are_missing(copy: Callable[[str], Path]) -> None:
    folder = rewrite(
        copy("lora"), lambda t: {k: v for k, v in t.items() if "0.self_attn.q_proj.lora_B" not in k}
    )
    assert found(folder) == {"tensors-missing": "error"}
    folder = rewrite(
        copy("dora"), lambda t: {k: v for k, v in t.items() if "layers.1.self_attn.q_proj" not in k}
    )
    assert found(folder) == {"tensors-missing": "warning"}


def test_another_base(made: Path, copy: Callable[[str], Path], tmp_path: Path) -> None:
    other = make.base(tmp_path / "other", seed=7)
    wide = make.base(tmp_path / "wide", hidden_size=48)
    rule = "adapter-on-another-base"
    # The base that its adapter_config.json names lies there, and has other weights.
    assert found(made / "lora", other) == {rule: "warning"}
    assert found(made / "on-embedding", other) == {rule: "error"}
    assert found(made / "heads", other) == {rule: "error"}
    assert found(made / "lora", wide) == {rule: "error"}
    folder = copy("lora")
    write_base_fingerprint(folder, read_checkpoint(made / "base"))
    assert found(folder) == {}
    assert found(folder, other) == {rule: "error"}
    make.edit(folder / "adapter_config.json", base_model_name_or_path=None)
    assert found(folder) == {rule: "warning"}


@pytest.mark.parametrize("name", ["base", "tied", "tuned"])
def test_a_layer_that_is_not_there(name: str, copy: Callable[[str], Path], made: Path) -> None:
    folder = copy(name)
    if name == "tuned":
        make.edit(folder / "config.json", num_hidden_layers=3)
    else:
        rewrite(folder, lambda t: {k: v for k, v in t.items() if "layers.0." not in k})
    assert found(folder) == {"tensors-missing": "error"}


def test_a_tensor_that_the_base_has(copy: Callable[[str], Path], made: Path) -> None:
    folder = rewrite(
        copy("merged"), lambda t: {k: v for k, v in t.items() if "1.mlp.up_proj" not in k}
    )
    assert found(folder, made / "base") == {"tensors-missing": "error"}


def test_empty_shards(copy: Callable[[str], Path]) -> None:
    import torch

    name = "model.layers.0.mlp.up_proj.weight"
    folder = rewrite(copy("base"), lambda t: {**t, name: torch.zeros(0)})
    assert found(folder) == {"zero3-shards-saved-as-empty-tensors": "error"}
    folder = rewrite(copy("bf16"), lambda t: {**t, name: t[name][:32].clone()})
    assert found(folder) == {"zero3-shards-saved-as-empty-tensors": "error"}
    (folder / "model.safetensors").unlink()
    (folder / "zero_to_fp32.py").write_text("")
    assert found(folder) == {"zero3-shards-saved-as-empty-tensors": "error"}


def test_a_file_that_is_cut_off(copy: Callable[[str], Path]) -> None:
    path = copy("base") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert found(path.parent) == {"weights-file-broken": "error"}


def test_nan_and_zeros(copy: Callable[[str], Path]) -> None:
    def broken(tensors: dict[str, Any]) -> dict[str, Any]:
        tensors["model.norm.weight"][3] = float("nan")
        tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = float("inf")
        tensors["model.layers.0.mlp.up_proj.weight"] *= 0
        return tensors

    folder = rewrite(copy("bf16"), broken)
    assert found(folder) == {"nan-in-weights": "error", "weights-all-zero": "warning"}
    assert (
        "2 of 21 tensors contain 1 NaN and 1 infinite"
        in checkpoint_report(folder).findings[0].message
    )


def test_flags_of_tied_embeddings(copy: Callable[[str], Path]) -> None:
    rule = "tied-embeddings-flag-contradicts-tensors"
    for name, flag in (("merged-head-tied", True), ("merged-tied", False)):
        folder = copy(name)
        make.edit(folder / "config.json", tie_word_embeddings=flag)
        assert found(folder) == {rule: "error"}


def test_merges_that_do_nothing_or_little(made: Path, tmp_path: Path) -> None:
    make.adapter(made / "bf16", tmp_path / "little", merged=True, dtype="bfloat16", lr=2e-5)
    assert found(tmp_path / "little", made / "bf16") == {
        "merged-into-4bit-or-low-precision": "warning"
    }
    make.adapter(made / "base", tmp_path / "nothing", merged=True, count=0)
    assert found(tmp_path / "nothing", made / "base") == {"weights-equal-the-base": "error"}


@pytest.mark.parametrize("targets", [["q_proj"], "all-linear"])
def test_a_merge_into_four_bits(targets: Any, tmp_path: Path) -> None:
    """Blocks of 64 values are rounded to 16 multiples of their largest, as NF4 does, before the merge."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    make.llama(hidden_size=128, intermediate_size=256).save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    for name, parameter in model.named_parameters():
        if "_proj" in name:
            blocks = parameter.data.reshape(-1, 64)
            scale = blocks.abs().amax(dim=1, keepdim=True)
            parameter.data = ((blocks / scale * 7).round() / 7 * scale).reshape(parameter.shape)
    tuned = make.steps(
        get_peft_model(model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM")),
        lr=1e-3,
    )
    tuned.merge_and_unload().save_pretrained(tmp_path / "merged")
    report = checkpoint_report(tmp_path / "merged", base=tmp_path / "base")
    assert [(f.rule, f.severity) for f in report.findings] == [
        ("merged-into-4bit-or-low-precision", "warning")
    ]


@pytest.mark.parametrize("pure", [True, False])
def test_training_in_bare_bfloat16(pure: bool, tmp_path: Path) -> None:
    import torch

    model = make.llama(hidden_size=128, intermediate_size=256).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "base")
    model = make.steps(model if pure else model.float(), 20, 1e-5).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "tuned")
    expected = (
        {"bf16-updates-rounded-away": "warning", "norms-never-moved": "warning"} if pure else {}
    )
    assert found(tmp_path / "tuned", tmp_path / "base") == expected


def test_new_tokens(made: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(made / "base")
    assert tokenizer.add_tokens(["<call>"], special_tokens=True) == 1
    row = tokenizer.convert_tokens_to_ids("<call>")
    rule = "new-token-rows-not-trained-or-saved"
    cases: dict[str, dict[str, Any]] = {
        "without": {},
        "with": {"trainable_token_indices": [row]},
    }
    for name, settings in cases.items():
        make.adapter(made / "base", tmp_path / name, **settings)
        tokenizer.save_pretrained(tmp_path / name)
        assert found(tmp_path / name) == ({rule: "error"} if name == "without" else {})
    model: Any = AutoModelForCausalLM.from_pretrained(made / "merged")
    for name, change in {"kept": 0.0, "trained": 0.1}.items():
        model.get_input_embeddings().weight.data[row] += change
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        expected = {"new-token-on-untrained-spare-row": "warning"} if name == "kept" else {}
        assert found(tmp_path / name, made / "base") == expected


def test_a_new_pad_token_needs_no_row(made: Path, copy: Callable[[str], Path]) -> None:
    from transformers import AutoTokenizer

    folder = copy("lora")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "<my_pad>"})
    tokenizer.save_pretrained(folder)
    assert found(folder) == {}


def test_special_ids(copy: Callable[[str], Path], made: Path) -> None:
    rule = "special-token-ids-differ-from-base"
    folder = copy("merged")
    make.edit(folder / "config.json", bos_token_id=None)
    assert found(folder, made / "base") == {rule: "warning"}
    make.edit(folder / "config.json", bos_token_id=0, eos_token_id=[3, 2])
    make.edit(folder / "generation_config.json", eos_token_id=[3, 2])
    assert found(folder, made / "base") == {}
    make.edit(folder / "generation_config.json", eos_token_id=2)
    assert found(folder, made / "base") == {rule: "warning"}
    make.edit(folder / "generation_config.json", eos_token_id=3, pad_token_id=3)
    assert found(folder, made / "base") == {rule: "warning"}


def test_templates(copy: Callable[[str], Path], made: Path) -> None:
    rule = "chat-template-missing-or-old-in-checkpoint"
    folder = copy("merged")
    text = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    digest = hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
    record = {"format": 1, "inputs": {"templates": {"default": digest}}}
    (folder / "manifest.json").write_text(json.dumps(record))
    assert found(folder, made / "base") == {}
    (folder / "chat_template.jinja").write_text(text + " ")
    assert found(folder, made / "base") == {rule: "error"}
    (folder / "manifest.json").unlink()
    assert found(folder, made / "base") == {}
    (folder / "chat_template.jinja").unlink()
    assert found(folder, made / "base") == {rule: "error"}


def test_a_record_that_truetune_wrote(copy: Callable[[str], Path], tmp_path: Path) -> None:
    import truetune
    from truetune.demo import DATA, TOKENIZER

    run = tmp_path / "run"
    truetune.encode(data=str(DATA), tokenizer=str(TOKENIZER), out=run)
    folder = copy("lora")
    shutil.copy(run / "manifest.json", folder)
    assert found(folder) == {}
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert found(folder) == {"chat-template-missing-or-old-in-checkpoint": "error"}


def test_settings_that_are_saved_along(copy: Callable[[str], Path]) -> None:
    folder = copy("base")
    make.edit(folder / "config.json", use_cache=False)
    assert found(folder) == {}
    make.edit(folder / "generation_config.json", use_cache=False, temperature=0.7)
    assert found(folder) == {"use-cache-saved-off": "warning"}
    make.edit(folder / "config.json", dtype="bfloat16")
    notes = {f.rule for f in checkpoint_report(folder).findings if f.severity == "info"}
    assert notes == {"sampling-defaults-from-generation-config", "dtype-differs-from-config"}


def test_a_run_of_the_trainer(made: Path, tmp_path: Path) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    ids = torch.randint(0, 300, (4, 8), generator=torch.Generator().manual_seed(0)).tolist()
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        save_steps=1,
        report_to=[],
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        use_cpu=True,
    )
    Trainer(
        model=AutoModelForCausalLM.from_pretrained(made / "base"),
        args=arguments,
        train_dataset=Dataset.from_dict({"input_ids": ids, "labels": ids}),
        processing_class=AutoTokenizer.from_pretrained(made / "base"),
    ).train()
    folder = tmp_path / "run" / "checkpoint-2"
    assert found(folder, made / "base") == {}
    make.edit(folder / "trainer_state.json", max_steps=10)
    assert found(folder) == {}
    (folder / "optimizer.pt").unlink()
    assert found(folder) == {"resume-state-missing": "warning"}
    (tmp_path / "run" / "checkpoint-1" / "optimizer.pt").unlink()
    assert found(tmp_path / "run" / "checkpoint-1") == {}


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model."])
def test_a_model_saved_in_its_wrapper(prefix: str, copy: Callable[[str], Path]) -> None:
    folder = rewrite(copy("base"), lambda t: {prefix + name: value for name, value in t.items()})
    assert found(folder) == {"tensors-missing": "error"}


def test_training_of_some_matrices_is_no_merge(tmp_path: Path) -> None:
    model = make.llama(hidden_size=128, intermediate_size=256)
    model.save_pretrained(tmp_path / "base")
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "proj" in name
    make.steps(model, 20, 3e-3).save_pretrained(tmp_path / "tuned")
    assert found(tmp_path / "tuned", tmp_path / "base") == {}


def test_families_with_heads_norms_and_embeddings_of_their_own(tmp_path: Path) -> None:
    import transformers

    small: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_attention_heads": 4,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    configs = {
        "ModernBertForMaskedLM": transformers.ModernBertConfig(**small, num_hidden_layers=4),
        "XLNetForSequenceClassification": transformers.XLNetConfig(
            vocab_size=128, d_model=32, n_layer=2, n_head=4, d_inner=32
        ),
        "CTRLLMHeadModel": transformers.CTRLConfig(
            vocab_size=128, n_embd=32, n_layer=2, n_head=4, dff=32
        ),
    }
    for name, config in configs.items():
        getattr(transformers, name)(config).save_pretrained(tmp_path / name)
        assert found(tmp_path / name) == {}, name
    rewrite(
        tmp_path / "XLNetForSequenceClassification",
        lambda t: {k: v for k, v in t.items() if "logits" not in k and "summary" not in k},
    )
    assert "head-not-saved" in found(tmp_path / "XLNetForSequenceClassification")


@pytest.mark.parametrize(
    "edit",
    [
        {"rank_pattern": {"a": [1]}},
        {"lora_alpha": 10**400, "use_rslora": True},
        {"r": 10**400, "use_rslora": True},
        {"base_model_name_or_path": "~nosuchuser/x"},
        {"base_model_name_or_path": "A" * 400},
        {"base_model_name_or_path": "A" * 5000},
    ],
)
def test_hostile_adapter_configs_raise_nothing(
    edit: dict[str, Any], copy: Callable[[str], Path]
) -> None:
    folder = copy("lora")
    make.edit(folder / "adapter_config.json", **edit)
    checkpoint_report(folder)


def test_a_pipe_for_a_config_is_not_waited_for(copy: Callable[[str], Path]) -> None:
    import os

    folder = copy("base")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert found(folder)["weights-file-broken"] == "error"


def test_gaps_of_layers_are_counted_by_their_borders() -> None:
    from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import find_stacks

    (stack,) = find_stacks(["layers.1.w", "layers.99999.w"])
    assert stack.missing_number_ranges() == [(0, 0), (2, 99_998)]

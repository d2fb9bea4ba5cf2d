"""What an adapter on fused experts makes of its base is computed as peft merges it, whatever form the files have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checkpoint.weight_diff import MovementManifest, compare_weights

SIZES = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 4, "intermediate_size": 24, "moe_intermediate_size": 12, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0, "tie_word_embeddings": False,
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "shared_expert_intermediate_size": 12,
}  # fmt: skip


class Case(NamedTuple):
    model_type: str
    targets: list[str] | str
    parameters: list[str] | None
    expert_tensors: int
    """That are merged"""


CASES = (
    # One tensor of all experts, stored as (in, out)
    Case("gpt_oss", ["q_proj"], ["experts.gate_up_proj", "experts.down_proj"], 4),
    # Experts one by one in the files, with names that peft takes for parameters
    Case("qwen3_moe", "all-linear", None, 24),
    # Another name of the module and of the matrices in the files
    Case("mixtral", ["q_proj", "w1", "w2", "w3"], None, 24),
    # One of two parameters
    Case("qwen2_moe", ["q_proj"], ["mlp.experts.down_proj"], 8),
)


def merged_by_peft(case: Case, folder: Path) -> MovementManifest:
    """The comparison of the base with what peft merged, and with what it should be."""
    import peft
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(case.model_type, **SIZES)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder / "base")
    options: dict[str, Any] = {"target_parameters": case.parameters} if case.parameters else {}
    lora = peft.LoraConfig(
        r=3, lora_alpha=6, target_modules=case.targets, init_lora_weights=False, **options
    )
    adapted: Any = peft.get_peft_model(model, lora)
    adapted.save_pretrained(folder / "adapter")
    adapted.merge_and_unload().save_pretrained(folder / "merged")
    base = folder / "base"
    adapter = read_checkpoint(folder / "adapter", base=base)
    return compare_weights(read_checkpoint(folder / "merged", base=base), adapter)


# 3 s of processor time for all four, most of it the import of torch.
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model_type)
def test_a_merge_of_peft_is_base_plus_adapter(case: Case, tmp_path: Path) -> None:
    manifest = merged_by_peft(case, tmp_path)
    merged = {tensor.name: tensor.merged for tensor in manifest.tensors if tensor.merged}
    assert (
        sum("experts." in name and "shared" not in name for name in merged) == case.expert_tensors
    )
    assert any("q_proj" in name for name in merged)
    assert not manifest.left_out
    for name, kept in merged.items():
        assert kept.kept == pytest.approx(1.0, abs=1e-6), name
        assert kept.error < 1e-5, name

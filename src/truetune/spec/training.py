"""Training: how a run trains, in the terms of transformers, TRL and peft."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Method = Literal["sft", "dpo", "orpo", "cpo", "kto", "reward", "grpo", "ppo", "pretrain"]
"""cpo: SimPO as well; grpo: whatever samples its answers in groups while it trains."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Lora(_Part):
    """A low-rank adapter; names and meanings of peft's LoraConfig."""

    r: int = Field(default=8, gt=0)
    lora_alpha: float = 8
    lora_dropout: float = 0.0
    target_modules: tuple[str, ...] | str | None = None
    """Names or name endings, a pattern, or `all-linear`; None: peft's default for the architecture."""
    modules_to_save: tuple[str, ...] = ()
    trainable_token_indices: tuple[int, ...] = ()
    use_rslora: bool = False
    use_dora: bool = False
    init_lora_weights: bool | str = True


class Training(_Part):
    """The settings of the training itself; None where nothing is known."""

    method: Method = "sft"
    learning_rate: float | None = None
    lr_scheduler_type: str | None = None
    warmup_steps: float | None = None
    """Steps; a share of all steps where it is below 1."""
    warmup_ratio: float | None = None
    num_train_epochs: float | None = None
    max_steps: int | None = None
    """None or below 1: the epochs decide."""
    per_device_train_batch_size: int | None = None
    per_device_eval_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    devices: int = Field(default=1, gt=0)
    """Processes that train, one a GPU."""
    optim: str | None = None
    weight_decay: float | None = None
    max_grad_norm: float | None = None

    bf16: bool | None = None
    fp16: bool | None = None
    dtype: str | None = None
    """What the weights are loaded as: `bfloat16`, `float32`, `auto`, ..."""
    load_in: Literal[4, 8] | None = None
    """The base's weights are quantized to so many bits (QLoRA)."""
    lora: Lora | None = None
    """None: all weights are trained."""
    adapter: str | None = None
    """An adapter that training starts from."""
    gradient_checkpointing: bool | None = None
    use_reentrant: bool | None = None
    attn_implementation: str | None = None
    use_liger_kernel: bool | None = None
    fsdp: bool = False
    deepspeed_stage: Literal[0, 1, 2, 3] | None = None
    device_map: str | None = None

    packing: bool | None = None
    packing_strategy: str | None = None
    """TRL: bfd, bfd_split, wrapped; Axolotl: multipack; LLaMA-Factory: greedy, neat."""
    eval_packing: bool | None = None
    padding_free: bool | None = None
    completion_only_loss: bool | None = None
    assistant_only_loss: bool | None = None
    train_on_inputs: bool | None = None
    """Axolotl's and LLaMA-Factory's train_on_prompt: prompts are supervised too."""
    skip_prepare_dataset: bool = False
    remove_unused_columns: bool | None = None
    shuffle: bool | None = None
    prepared_path: str | None = None
    """Where the stack keeps encoded data and finds it again."""
    added_tokens: tuple[str, ...] = ()
    special_tokens: dict[str, str] = Field(default_factory=dict)
    """Set on the tokenizer before training: `pad_token`, `eos_token`, ..."""
    pads_masked_by: Literal["position", "id"] | None = None
    """How the collator finds the pads in the labels, where the stack is known: TRL, Axolotl and LLaMA-Factory by their
    position, transformers' language-modelling collator by the id of the pad token."""
    resize_vocab: bool | None = None

    eval_strategy: str | None = None
    eval_steps: float | None = None
    save_strategy: str | None = None
    save_steps: float | None = None
    save_total_limit: int | None = None
    logging_steps: float | None = None
    logging_nan_inf_filter: bool | None = None
    eval_accumulation_steps: int | None = None
    eval_logits_kept: bool = False
    """Metrics are computed from logits that nothing reduces beforehand."""
    load_best_model_at_end: bool | None = None
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    resume_from_checkpoint: str | bool | None = None
    output_dir: str | None = None
    val_size: float | None = None
    """Rows, or the share, that are held out of the training data for evaluation."""

    beta: float | None = None
    """DPO, ORPO, KTO: weight of the reference or of the odds ratio."""
    loss_type: str | None = None
    reference: str | None = None
    """The reference model; None: the trainer makes it (the policy at its start, or with its adapter off)."""
    precompute_ref_log_probs: bool | None = None
    disable_dropout: bool | None = None
    desirable_weight: float | None = None
    undesirable_weight: float | None = None

    other: dict[str, Any] = Field(default_factory=dict)
    """Settings of the stack that have no field here, by the stack's own names."""

"""TrainingSettings: how a run trains, in the terms of transformers, TRL and peft.

The names are those of `TrainingArguments`, `SFTConfig` and `LoraConfig` wherever these have one: users know them, and
`truetune train` hands them on. None stands for "not set and no default is known"; rules say nothing about such a value.
What a stack has besides is kept in `other`, under the stack's own name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Method = Literal["sft", "dpo", "orpo", "cpo", "kto", "reward", "grpo", "ppo", "pretrain"]
"""cpo: SimPO as well; grpo: whatever samples its answers in groups while it trains."""
SAMPLES_ITS_ANSWERS: tuple[Method, ...] = ("grpo", "ppo")
"""Methods whose rows hold prompts, and no answer that is learned"""


class _Part(BaseModel):
    """Base of the groups of training settings: frozen, without unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True
    )


class Lora(_Part):
    """A low-rank adapter; names and meanings of peft's LoraConfig."""

    r: int = Field(default=8, gt=0)
    """Rank: the width of the two matrices beside each adapted one (`truetune train`: 16 where it is not set)."""
    lora_alpha: float = 8
    """The update is scaled by lora_alpha / r, with use_rslora by lora_alpha / sqrt(r) (`truetune train`: by 2)."""
    lora_dropout: float = 0.0
    """The share of an adapter's inputs that is set to 0 at random."""
    target_modules: tuple[str, ...] | str | None = None
    """Names or name endings, a pattern, or `all-linear`; None: peft's default (`truetune train`: all-linear)."""
    target_parameters: tuple[str, ...] = ()
    """Names or name endings of parameters that are no weight of a linear layer, as those of fused experts."""
    modules_to_save: tuple[str, ...] = ()
    """Modules that are trained and saved whole, beside the adapter."""
    trainable_token_indices: tuple[int, ...] = ()
    """Ids of tokens whose rows of the embedding are trained."""
    use_rslora: bool = False
    """Rank-stabilised LoRA: see lora_alpha."""
    use_dora: bool = False
    """DoRA: size and direction of a weight are trained apart."""
    init_lora_weights: bool | str = True
    """How an adapter starts; true: it changes nothing at first."""


class Training(_Part):
    """The settings of the training itself; None where nothing is known."""

    method: Method = "sft"
    """What is trained for: sft (answers), dpo or orpo (pairs), kto (answers judged good or bad), grpo (rewards)."""
    learning_rate: float | None = None
    """The highest learning rate."""
    lr_scheduler_type: str | None = None
    """How the learning rate falls: cosine, linear, constant_with_warmup, ..."""
    warmup_steps: float | None = None
    """Steps; a share of all steps where it is below 1."""
    warmup_ratio: float | None = None
    """The share of the steps; warmup_steps below 1 is the same."""
    num_train_epochs: float | None = None
    """How often each row is seen."""
    max_steps: int | None = None
    """None or below 1: the epochs decide."""
    per_device_train_batch_size: int | None = None
    """Rows (dpo, orpo: pairs) in one forward pass on one device."""
    per_device_eval_batch_size: int | None = None
    """The same in an evaluation."""
    gradient_accumulation_steps: int | None = None
    """Forward passes in one step of the optimizer."""
    devices: int = Field(default=1, gt=0)
    """Processes that train, one a GPU."""
    optim: str | None = None
    """The optimizer: adamw_torch_fused, paged_adamw_8bit, ..."""
    weight_decay: float | None = None
    """The share by which weights shrink, times the learning rate, each step."""
    max_grad_norm: float | None = None
    """Gradients are scaled down to this norm."""

    bf16: bool | None = None
    """Compute in bfloat16 (autocast)."""
    fp16: bool | None = None
    """Compute in float16 (autocast), for GPUs without bfloat16."""
    dtype: str | None = None
    """What the weights are loaded as: `bfloat16`, `float32`, `auto`, ..."""
    load_in: Literal[4, 8] | None = None
    """The base's weights are quantized to so many bits (QLoRA)."""
    lora: Lora | None = None
    """None: all weights are trained."""
    adapter: str | None = None
    """An adapter that training starts from."""
    gradient_checkpointing: bool | None = None
    """Compute activations twice and keep few of them: a quarter more time, much less memory."""
    use_reentrant: bool | None = None
    """PyTorch's older form of gradient checkpointing."""
    attn_implementation: str | None = None
    """sdpa, flex_attention, flash_attention_2, ..."""
    use_liger_kernel: bool | None = None
    """Liger's kernels, on a GPU."""
    fsdp: bool = False
    """Weights are shared out over the devices by FSDP."""
    deepspeed_stage: Literal[0, 1, 2, 3] | None = None
    """Stage of DeepSpeed's ZeRO."""
    device_map: str | None = None
    """How one process shares a model out over devices."""

    packing: bool | None = None
    """Several examples in one row (truetune: encode.packing)."""
    packing_strategy: str | None = None
    """TRL: bfd, bfd_split, wrapped; Axolotl: multipack; LLaMA-Factory: greedy, neat."""
    eval_packing: bool | None = None
    """The same for evaluation rows."""
    padding_free: bool | None = None
    """The rows of a batch stand one after the other, without pads."""
    completion_only_loss: bool | None = None
    """TRL's: only what follows the prompt is supervised."""
    assistant_only_loss: bool | None = None
    """TRL's: only assistant turns are supervised."""
    train_on_inputs: bool | None = None
    """Axolotl's and LLaMA-Factory's train_on_prompt: prompts are supervised too."""
    skip_prepare_dataset: bool = False
    """TRL's: the rows are encoded already."""
    no_length_limit: bool = False
    """TRL's `max_length=None`: no row is cut, and the longest one decides the memory."""
    open_length_limit: bool = False
    """The program sets a limit to a value that is not known: neither that value nor the default is its limit."""
    remove_unused_columns: bool | None = None
    """Columns that the model does not take are removed."""
    shuffle: bool | None = None
    """Rows are shuffled."""
    prepared_path: str | None = None
    """Where the stack keeps encoded data and finds it again."""
    added_tokens: tuple[str, ...] = ()
    """Tokens that are added to the tokenizer before training."""
    special_tokens: dict[str, str] = Field(default_factory=dict)
    """Set on the tokenizer before training: `pad_token`, `eos_token`, ..."""
    pads_masked_by: Literal["position", "id", "unknown"] | None = None
    """How the collator finds the pads in the labels; None: as the trainer does by default (`trained_by`)."""
    resize_vocab: bool | None = None
    """The embedding is resized to the vocabulary."""

    eval_strategy: str | None = None
    """When held-out rows are evaluated: steps, epoch or no."""
    eval_steps: float | None = None
    """Steps between two evaluations; a share of all steps where it is below 1."""
    save_strategy: str | None = None
    """When a checkpoint is written: steps, epoch or no."""
    save_steps: float | None = None
    """Steps between two checkpoints; a share of all steps where it is below 1."""
    save_total_limit: int | None = None
    """Checkpoints that are kept, the last ones."""
    logging_steps: float | None = None
    """Steps between two points of the log; a share of all steps where it is below 1."""
    logging_nan_inf_filter: bool | None = None
    """Losses that are no numbers are left out of what is logged."""
    eval_accumulation_steps: int | None = None
    """Batches of an evaluation after which results go to the CPU."""
    eval_logits_kept: bool | None = None
    """Metrics are computed from logits that nothing reduces beforehand; settings alone do not say it."""
    load_best_model_at_end: bool | None = None
    """The checkpoint with the best evaluation is loaded at the end."""
    metric_for_best_model: str | None = None
    """What is best: eval_loss, ..."""
    greater_is_better: bool | None = None
    """Whether that metric should rise."""
    resume_from_checkpoint: str | bool | None = None
    """The checkpoint that the run continues from; true: the last one."""
    output_dir: str | None = None
    """The folder of the run's record, checkpoints and weights."""
    val_size: float | None = None
    """Rows, or the share, that are held out of the training data for evaluation."""

    beta: float | None = None
    """DPO, ORPO, KTO, GRPO: weight of the reference or of the odds ratio."""
    loss_type: str | None = None
    """A variant of the method's loss, by TRL's name: sigmoid, ipo, apo_zero, ..."""
    reference: str | None = None
    """The reference model; None: the trainer makes it (the policy at its start, or with its adapter off)."""
    precompute_ref_log_probs: bool | None = None
    """The reference is asked once, before the first step, and then let go."""
    disable_dropout: bool | None = None
    """No dropout in policy and reference."""
    desirable_weight: float | None = None
    """KTO: weight of the answers judged good."""
    undesirable_weight: float | None = None
    """KTO: weight of the answers judged bad."""
    rewards: tuple[str, ...] = ()
    """GRPO: what answers are rewarded by: FILE.py:FUNCTION, MODULE:FUNCTION, `exact` (the reference word for word), or
    `agrees:PARSER` (the parser reads the same of the answer and of the reference: agrees:number)."""
    reward_weights: tuple[float, ...] | None = None
    """GRPO: weight of each of `rewards`; None: 1 each."""
    num_generations: int | None = None
    """GRPO: answers that are sampled to each prompt, and compared with each other."""
    max_completion_length: int | None = None
    """GRPO: tokens after which a sampled answer is cut."""

    other: dict[str, Any] = Field(default_factory=dict)
    """Settings of the stack that have no field here, by the stack's own names."""

    @field_validator("rewards", mode="before")
    @classmethod
    def _single_reward_as_tuple(cls, value: Any) -> Any:
        """A single name as a tuple of one; anything else as it is."""
        return (value,) if isinstance(value, str) else value

    @field_validator("reward_weights", mode="before")
    @classmethod
    def _single_weight_as_tuple(cls, value: Any) -> Any:
        """A single number as a tuple of one, as a command line gives it; anything else as it is."""
        return (value,) if isinstance(value, int | float | str) else value

    @field_validator("eval_strategy", "save_strategy", mode="before")
    @classmethod
    def _false_as_no(cls, value: Any) -> Any:
        """`no` for False, which is how YAML reads a plain `no`; anything else as it is."""
        return "no" if value is False else value

"""Healthy settings of every stack, as people write them."""

from __future__ import annotations

from typing import Any

AXOLOTL: dict[str, Any] = {
    "base_model": "some/model",
    "datasets": [{"path": "some/rows", "type": "chat_template"}],
    "chat_template": "tokenizer_default",
    "val_set_size": 0.05,
    "output_dir": "outputs/one",
    "sequence_len": 4096,
    "sample_packing": True,
    "attn_implementation": "flash_attention_2",
    "gradient_accumulation_steps": 4,
    "micro_batch_size": 2,
    "num_epochs": 3,
    "optimizer": "adamw_8bit",
    "lr_scheduler": "cosine",
    "learning_rate": 0.0002,
    "warmup_ratio": 0.05,
    "bf16": "auto",
    "gradient_checkpointing": True,
    "logging_steps": 1,
    "evals_per_epoch": 4,
    "saves_per_epoch": 1,
    "dataset_prepared_path": "prepared-one",
}
LLAMA_FACTORY: dict[str, Any] = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "lora_rank": 8,
    "lora_target": "all",
    "dataset": "one,two",
    "template": "qwen3",
    "cutoff_len": 2048,
    "output_dir": "saves/one",
    "logging_steps": 10,
    "save_steps": 500,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "learning_rate": 1.0e-4,
    "num_train_epochs": 3.0,
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.1,
    "bf16": True,
    "val_size": 0.1,
    "per_device_eval_batch_size": 1,
    "eval_strategy": "steps",
    "eval_steps": 500,
}
TRL: dict[str, Any] = {
    "model_name_or_path": "some/model",
    "dataset_name": "some/rows",
    "max_length": 4096,
    "learning_rate": 2.0e-5,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.03,
    "num_train_epochs": 1,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "bf16": True,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "assistant_only_loss": True,
    "output_dir": "out",
}
LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_target_linear": True}
PEFT = {"use_peft": True, "lora_r": 32, "lora_alpha": 16}

HEALTHY: dict[str, dict[str, Any]] = {
    "axolotl lora": {**AXOLOTL, **LORA},
    "axolotl qlora, listed targets": {
        **AXOLOTL, **LORA, "adapter": "qlora", "load_in_4bit": True, "lora_target_linear": None,
        "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    },
    "axolotl odd targets": {
        **AXOLOTL, **LORA, "lora_target_linear": None,
        "lora_target_modules": ["linear_attn.in_proj_qkv", "g_proj", "Wqkv", "mixer.out_proj", "block_sparse_moe.w1"],
    },
    "axolotl new tokens": {
        **AXOLOTL, **LORA, "tokens": ["<call>"], "lora_modules_to_save": ["embed_tokens", "lm_head"],
    },
    "axolotl dpo": {
        **AXOLOTL, **LORA, "rl": "dpo", "sample_packing": None, "learning_rate": 5e-6, "evals_per_epoch": None,
        "datasets": [{"path": "some/pairs", "type": "chat_template.default", "field_messages": "conversation"}],
    },
    "axolotl gemma": {**AXOLOTL, **LORA, "chat_template": "gemma3", "eot_tokens": ["<end_of_turn>"]},
    "axolotl full, sharded": {
        **AXOLOTL, "learning_rate": 2e-5, "deepspeed": "zero3.json", "optimizer": "adamw_torch_fused",
    },
    "axolotl completion": {
        **AXOLOTL, **LORA, "datasets": [{"path": "some/text", "type": "completion"}], "train_on_inputs": True,
    },
    "llama-factory lora": LLAMA_FACTORY,
    "llama-factory full": {
        **{key: LLAMA_FACTORY[key] for key in LLAMA_FACTORY if not key.startswith("lora_")}, "finetuning_type": "full",
        "learning_rate": 1e-5, "deepspeed": "z3.json",
    },
    "llama-factory packed": {**LLAMA_FACTORY, "neat_packing": True},
    "llama-factory pretraining": {
        **LLAMA_FACTORY, "stage": "pt", "template": None, "val_size": 0, "eval_strategy": "no", "eval_steps": None,
    },
    "llama-factory dpo": {**LLAMA_FACTORY, "stage": "dpo", "pref_beta": 0.1, "learning_rate": 5e-6},
    "llama-factory kto": {**LLAMA_FACTORY, "stage": "kto", "pref_beta": 0.1, "learning_rate": 5e-6},
    "llama-factory qlora": {**LLAMA_FACTORY, "quantization_bit": 4, "lora_target": "q_proj,v_proj"},
    "trl sft": TRL,
    "trl sft, lora": {**TRL, **PEFT, "learning_rate": 2e-4, "lora_target_modules": ["all-linear"]},
    "trl packed": {**TRL, "packing": True, "attn_implementation": "flash_attention_2"},
    "trl dpo": {
        **{key: TRL[key] for key in TRL if key not in ("assistant_only_loss", "learning_rate")},
        "beta": 0.1, "loss_type": ["sigmoid"], "learning_rate": 5e-7, "precompute_ref_log_probs": True,
    },
    "trl best by reward": {
        **{key: TRL[key] for key in TRL if key != "assistant_only_loss"}, "learning_rate": 1e-6, "beta": 0.05,
        "precompute_ref_log_probs": False, "metric_for_best_model": "eval_rewards/accuracies",
    },
    "truetune": {
        "data": "some/rows.jsonl", "tokenizer": "some/model", "max_length": 4096,
        "training": {"learning_rate": 2e-4, "lora": {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}},
    },
}  # fmt: skip
VERL: dict[str, Any] = {
    "defaults": ["ppo_trainer", "_self_"],
    "data": {"train_files": "train.parquet", "val_files": "test.parquet", "train_batch_size": 256},
    "actor_rollout_ref": {
        "model": {"path": "some/model"},
        "actor": {
            "optim": {"lr": 1e-6},
            "ppo_mini_batch_size": 64,
            "use_kl_loss": True,
            "kl_loss_coef": 0.001,
        },
        "rollout": {"name": "vllm", "temperature": 1.0, "n": 8},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "trainer": {"total_epochs": 2, "save_freq": 20},
}

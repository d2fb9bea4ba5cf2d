"""Signs of what makes a training or a generation slow."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import SET, Sign

SIGNS = (
    Sign(
        r"^an evaluation, or saving, too often",
        rf"\b(?:eval|save)_steps{SET}(?:\d{{1,2}}|0?\.0\d+)\b(?![.\d])|\bval_check_interval{SET}(?:0?\.\d+|\d{{1,2}}\b(?!\.))"
        rf"|predict_with_generate{SET}[Tt]rue|\bevals_per_epoch{SET}\d\d",
    ),
    Sign(
        r"^whole checkpoints are written too often",
        rf"\bsave_steps{SET}\d{{1,2}}\b(?![.\d])|\bevery_n_train_steps{SET}\d{{1,2}}\b",
        unless=rf"save_strategy{SET}(?:no|epoch)\b|save_only_model{SET}[Tt]rue",
    ),
    Sign(
        r"data loader of one process",
        rf"\bnum_workers{SET}0\b|dataloader_num_workers{SET}0\b|\bDataLoader\((?!.*num_workers).*\)",
    ),
    Sign(
        r"^a tiny batch with many accumulation steps",
        rf"(?:accum\w*|ACCUM\w*){SET}(?:1[6-9]|[2-9]\d|\d{{3,4}})\b(?!\.)",
        beside=rf"batch_?size\w*{SET}[12]\b(?!\.)",
    ),
    Sign(
        r"^the attention is computed eagerly",
        rf"\battn\w*{SET}eager\b|eager_attention{SET}true|flash_attn{SET}disabled",
    ),
    Sign(
        r"^weights and matrix products in float32",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?float32|precision{SET}32\b|\b(?:bf16|fp16){SET}[Ff]alse"
        r"|(?:Model\w*|For[A-Z]\w+)\.from_pretrained\((?!.*dtype).*\)",
        unless=rf"\b(?:bf16|fp16|tf32){SET}(?:[Tt]rue|auto)|--(?:bf16|fp16)\b|bfloat16|(?<!b)float16|autocast|\.half\("
        rf"|mixed[-_]precision{SET}(?:bf|fp)|load_in_[48]bit|set_float32_matmul_precision|bf16-|16-mixed",
    ),
    Sign(
        r"^the completions of GRPO or RLOO",
        rf"\b(?:GRPO|RLOO)(?:Config|Trainer)\(|use_vllm{SET}[Ff]alse",
        unless=rf"use_vllm{SET}[Tt]rue|--use_vllm(?! [Ff]alse)|fast_inference{SET}True|rollout_func",
    ),
    Sign(
        r"^samples are generated, or tables logged",
        r"def on_(?:step_end|log|train_batch_end)\b|wandb\.Table\(",
        beside=r"\.generate\(",
    ),
    Sign(
        r"^rows are tokenized one at a time",
        rf"use_fast{SET}False|(?:preprocessing_num_workers|dataset_num_proc|dataset_processes|num_proc){SET}1\b"
        r"|(?:\bds\w*|data\w*|raw\w*|train\w*|rows?|corpus)(?:\[[^\]]{1,30}\])?\.map\((?!.*(?:batched|num_proc)).*\)",
        beside=r"[Tt]okeni[sz]|\btok\(|cutoff_len",
    ),
    Sign(
        r"^datasets can't hash",
        rf"load_from_cache_file{SET}False|disable_caching\(|overwrite_cache{SET}[Tt]rue",
    ),
    Sign(
        r"^rows or checkpoints lie on a slow disk",
        rf"(?:dir|path|file\w*|cache|HF_HOME){SET}/(?:mnt|nfs|lustre|gpfs|efs|content/drive)\b",
    ),
    Sign(
        r"^one row or prompt is asked at a time",
        rf"\bbatch_?size\w*(?::\s*int)?{SET}(?:field\(\s*default=)?1\b(?![\d.])|max[-_]num[-_]seqs{SET}1\b",
        beside=r"\.generate\(|\bpipeline\(|vllm",
    ),
    Sign(
        r"^Unsloth's model was not switched to inference",
        r"\.generate\(",
        unless=r"for_inference",
        beside=r"Fast(?:Language|Vision)?Model\.from_pretrained",
    ),
    Sign(
        r"^CUDA_LAUNCH_BLOCKING=1, a profiler",
        rf"\bprofile\(|profiler{SET}['\"](?:simple|advanced|pytorch)|with_stack{SET}[Tt]rue|record_shapes{SET}[Tt]rue",
    ),
    Sign(r"^DDP looks for unused weights", rf"find_unused_parameters{SET}[Tt]rue"),
    Sign(
        r"^an adapter (?:is computed beside its base|that is not merged)",
        r"\b(?:Auto)?Peft\w*\.from_pretrained\(|\.load_adapter\(",
        unless=r"merge_and_unload|merge_adapter|\.backward\(|Trainer\(",
    ),
    Sign(
        r"^llama.cpp runs more threads",
        rf"(?:\s|['\"])(?:-t|--threads|n_threads|num_thread){SET}\d+\b",
    ),
    Sign(
        r"^the model is loaded in float32",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?float32"
        r"|(?:Model\w*|For[A-Z]\w+)\.from_pretrained\((?!.*dtype).*\)|\bpipeline\((?!.*dtype).*\)",
        unless_in_file=r"bfloat16|(?<!b)float16|\.half\(|load_in_[48]bit|autocast|dtype\s*=\s*['\"]auto",
    ),
)  # fmt: skip

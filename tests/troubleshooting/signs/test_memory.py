"""Lines that show what takes the memory, and near misses that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import _causes_of_guide_and_if_listed
from truetune.troubleshooting.signs.find_signs_in_statements import (
    find_signs,
    signs_belonging_to_cause_text,
)

LOAD = "model = AutoModelForCausalLM.from_pretrained(path, dtype='bfloat16')\n"
STEP = "loss.backward()\n"
TRAINER = "trainer = Trainer(model, args)\n"
FAILED = "# torch.OutOfMemoryError: CUDA out of memory\nprint('CUDA out of memory')\n"
DDP = "dist.init_process_group('nccl')\n"


def shown(text: str) -> str:
    """The words of all signs that a script, or settings of one, show."""
    is_code = "(" in text or " = " in text
    name = "a.py" if is_code and "#SBATCH" not in text else "a.sh"
    return " ".join(sign.words for sign in find_signs([ProjectText(Path(name), text, True)]))


@pytest.mark.parametrize(
    ("sign", "text", "near_miss"),
    [
        ("activations: too many", "micro_batch_size: 32\n", "micro_batch_size: 2\n"),
        (
            "the run needs more memory than",
            f"batch_size = 16\n{TRAINER}{FAILED}",
            f"batch_size = 16\n{TRAINER}",
        ),
        ("eager attention holds", "attn_implementation: eager\n", "attn_implementation: sdpa\n"),
        (
            r"nn\.DataParallel",
            "model = nn.DataParallel(model)\n",
            "model = DistributedDataParallel(model)\n",
        ),
        ("embeddings and head", "modules_to_save = ['lm_head']\n", "modules_to_save = None\n"),
        (
            "tensors of each step",
            f"kept.append(out.logits)\n{STEP}",
            f"kept.append(out.logits.cpu())\n{STEP}",
        ),
        (
            "logits of a large vocabulary",
            "base_model: Qwen/Qwen3-8B\nsequence_len: 16384\n",
            "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\n",
        ),
        (
            "hidden states or attentions",
            "m(output_hidden_states=True)\ncompute_metrics(m)\n",
            "m(output_hidden_states=False)\ncompute_metrics(m)\n",
        ),
        ("images of full size", "max_pixels: 12845056\n", "max_pixels: 501760\n"),
        (
            "CUDA_VISIBLE_DEVICES is set",
            "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n",
            "os.environ['WANDB_MODE'] = '1'\n",
        ),
        (
            "instead of an adapter",
            f"config = LoraConfig(r=8)\n{TRAINER}",
            "config = LoraConfig(r=8)\nmodel = get_peft_model(model, config)\n",
        ),
        (
            "states of the optimizer",
            "optimizer = AdamW(model.parameters())\n",
            "optimizer = AdamW8bit(model.parameters())\n",
        ),
        (
            "a second model is loaded",
            "trainer.train()\nx = model.merge_and_unload()\n",
            "x = model.merge_and_unload()\n",
        ),
        (
            "an evaluation with larger",
            "per_device_eval_batch_size: 32\n",
            "per_device_eval_batch_size: 1\n",
        ),
        (
            "the evaluation batch size is",
            "per_device_train_batch_size: 1\neval_steps: 50\n",
            "per_device_train_batch_size: 1\nper_device_eval_batch_size: 1\neval_steps: 50\n",
        ),
        (
            "one row far longer",
            f"row = tok(text)\n{STEP}",
            f"row = tok(text, truncation=True)\n{STEP}",
        ),
        ("losses that a loop keeps", f"total += loss\n{STEP}", f"total += loss.item()\n{STEP}"),
        (
            "gathered on one GPU",
            "fsdp_state_dict_type: FULL_STATE_DICT\n",
            "fsdp_state_dict_type: SHARDED_STATE_DICT\n",
        ),
        (
            r"torch\.load without",
            f"torch.load('a.pt')\n{DDP}",
            f"torch.load('a.pt', map_location='cpu')\n{DDP}",
        ),
        (
            "every process puts its model",
            f"model.to('cuda')\n{DDP}",
            f"model.to('cuda')\ntorch.cuda.set_device(rank)\n{DDP}",
        ),
        (
            "gradient checkpointing is inactive",
            f"model.gradient_checkpointing_enable()\n{STEP}",
            f"model.gradient_checkpointing_enable()\nmodel.train()\n{STEP}",
        ),
        (
            r"without torch\.no_grad",
            f"other = teacher(batch)\n{STEP}",
            f"with torch.no_grad(): other = teacher(batch)\n{STEP}",
        ),
        (
            "weights are cast to float32",
            "model = prepare_model_for_kbit_training(model)\n",
            "model = prepare_model(model)\n",
        ),
        (
            "all rows are padded",
            "padding: max_length\nmicro_batch_size: 1\n",
            "padding: longest\nmicro_batch_size: 1\n",
        ),
        (
            "loaded before ZeRO-3",
            f"{LOAD}config = {{'stage': 3}}\n",
            f"{LOAD}config = {{'stage': 2}}\n",
        ),
        (
            "the machine's memory",
            "slurmstepd: error: Detected 1 oom_kill event\n",
            "slurmstepd: error: time limit\n",
        ),
        (
            "a merge loads the whole base",
            "export_dir: out\nexport_device: auto\n",
            "export_dir: out\nexport_device: cpu\n",
        ),
        (
            "FSDP makes one unit",
            "fsdp_auto_wrap_policy: NO_WRAP\n",
            "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
        ),
        (
            "the optimizer are offloaded",
            "offload_optimizer: {device: cpu}\n",
            "gradient_clipping: 1\n",
        ),
        ("a load without a dtype", LOAD.replace(", dtype='bfloat16'", ""), LOAD),
        ("vLLM on the GPU that trains", "use_vllm: true\n", "use_vllm: false\n"),
        (
            "DPO holds a second",
            "DPOTrainer(model, ref_model=base)\n",
            "DPOTrainer(model, ref_model=None, peft_config=lora)\n",
        ),
        ("chosen and rejected", "rl: dpo\nmicro_batch_size: 4\n", "rl: dpo\nmicro_batch_size: 1\n"),
        (
            r"one backward\(\) for many",
            "total = total + loss\ntotal.backward()\n",
            "total = total + loss.item()\nloss.backward()\n",
        ),
        (
            "all prompts of a file",
            "batch = tok(prompts, padding=True)\nmodel.generate(**batch)\n",
            "batch = tok(prompts[i : i + 8])\nmodel.generate(**batch)\n",
        ),
        (
            "the evaluation harness",
            "lm_eval --batch_size 64 --tasks mmlu\n",
            "lm_eval --batch_size auto --tasks mmlu\n",
        ),
        ("saved in float32", '"torch_dtype": "float32"\n', '"torch_dtype": "bfloat16"\n'),
        (
            "device_map spreads",
            f"x = load(device_map='auto')\n{TRAINER}",
            f"x = load(device_map='auto', max_memory=m)\n{TRAINER}",
        ),
        ("rows of like length", "group_by_length: true\n", "group_by_length: false\n"),
        (
            "checkpointing is switched off",
            "gradient_checkpointing: false\n",
            "gradient_checkpointing: true\n",
        ),
        (
            "packing fills every row",
            "sample_packing: true\nmicro_batch_size: 4\n",
            "sample_packing: false\nmicro_batch_size: 4\n",
        ),
        ("ZeRO's stages 1 and 2", '"stage": 2\n', '"stage": 3\n'),
        ("DeepSpeed's buffers", '"reduce_bucket_size": 5e9\n', '"reduce_bucket_size": 5e8\n'),
        (
            "a mixture of experts",
            "base_model: Qwen/Qwen3-30B-A3B\n",
            "base_model: Qwen/Qwen3-32B\n",
        ),
        ("the server's cache", "PARAMETER num_ctx 131072\n", "PARAMETER num_ctx 8192\n"),
        (
            "vLLM's share leaves nothing",
            "vllm serve m --gpu-memory-utilization 0.98\n",
            "vllm serve m --gpu-memory-utilization 0.9\n",
        ),
        (
            "a copy of all weights",
            "teacher = copy.deepcopy(model)\n",
            "args = copy.deepcopy(config)\n",
        ),
        (
            "the job asks for no memory",
            "#SBATCH --gres=gpu:1\n",
            "#SBATCH --gres=gpu:1\n#SBATCH --mem=64G\n",
        ),
        ("the GPU is a slice", "GPU 0: A100 MIG 1g.10gb\n", "GPU 0: A100 80GB\n"),
        (
            "memory is held in pieces",
            "24.90 GiB is reserved by PyTorch but unallocated\n",
            "24.90 GiB is allocated by PyTorch\n",
        ),
        (
            "log probabilities for all",
            "rl: grpo\nnum_generations: 16\n",
            "rl: sft\nnum_generations: 16\n",
        ),
        (
            "several sequences are generated",
            "model.generate(num_return_sequences=16)\n",
            "model.generate(num_return_sequences=1)\n",
        ),
        (
            "a quantization config",
            "q = BitsAndBytesConfig()\n",
            "load(quantization_config=BitsAndBytesConfig())\n",
        ),
        ("both bf16 and fp16", "bf16: true\nfp16: true\n", "bf16: true\nfp16: false\n"),
        ("each worker of", "gunicorn -w 4 app:app\n", "gunicorn -w 1 app:app\n"),
    ],
)
def test_a_line_shows_a_cause_and_its_near_miss_does_not(
    sign: str, text: str, near_miss: str
) -> None:
    assert sign in shown(text)
    assert sign not in shown(near_miss)


def test_each_cause_of_the_guide_has_a_sign() -> None:
    causes = [cause.text for cause, _ in _causes_of_guide_and_if_listed("out-of-memory")]
    assert [text for text in causes if not signs_belonging_to_cause_text(text)] == []

"""Lines that show what makes a training or a generation slow, and near misses that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.signs.find_signs_in_statements import find_signs
from truetune.troubleshooting.signs.slow_training_or_generation import SIGNS

LOAD = "model = AutoModelForCausalLM.from_pretrained(path, dtype='bfloat16')\n"
STEP = "loss.backward()\n"
ANSWER = "model.generate(**batch)\n"
VLLM = "vllm serve m\n"


def shown(text: str) -> str:
    """The words of all signs of slowness that a script, or settings of one, show."""
    is_code = "(" in text or " = " in text
    found = find_signs([ProjectText(Path("a.py" if is_code else "a.sh"), text, True)])
    return " ".join(sign.words for sign in found if sign in SIGNS)


@pytest.mark.parametrize(
    ("sign", "text", "near_miss"),
    [
        (
            "optimizer are offloaded",
            "offload_optimizer: {device: cpu}\n",
            "offload_optimizer: {device: none}\n",
        ),
        (
            "rows are padded to",
            "padding: max_length\nmicro_batch_size: 1\n",
            "padding: longest\nmicro_batch_size: 1\n",
        ),
        ("linear attention", "The fast path is not available\n", "The path is not available\n"),
        (
            "gradient checkpointing, although",
            "gradient_checkpointing: true\n9000MiB / 81559MiB\n",
            "gradient_checkpointing: false\n9000MiB / 81559MiB\n",
        ),
        (
            r"torch\.compile compiles again",
            "model = torch.compile(model)\n",
            "model = torch.jit.script(model)\n",
        ),
        ("gradients cross a slow", "export NCCL_IB_DISABLE=1\n", "export NCCL_IB_DISABLE=0\n"),
        (
            "one GPU of several",
            "x = load(device_map='auto')\n",
            "x = load(device_map={'': rank})\n",
        ),
        ("samples are generated", f"{ANSWER}{STEP}", ANSWER),
        ("rows or checkpoints lie", "output_dir: /mnt/nfs/out\n", "output_dir: out\n"),
        ("a profiler", "torch.autograd.set_detect_anomaly(True)\n", "torch.autograd.grad(x, y)\n"),
        (r"empty_cache", f"torch.cuda.empty_cache()\n{STEP}", "torch.cuda.empty_cache()\n"),
        (
            "a resumed run",
            "resume_from_checkpoint: out/checkpoint-500\n",
            "resume_from_checkpoint: false\n",
        ),
        ("a build without CUDA", "torch==2.5.1+cpu\n", "torch==2.5.1+cu124\n"),
        ("each checkpoint is uploaded", "hub_strategy: every_save\n", "hub_strategy: end\n"),
        (
            "the evaluation keeps",
            "Trainer(compute_metrics=f)\n",
            "Trainer(compute_metrics=f, preprocess_logits_for_metrics=g)\n",
        ),
        ("small files", f"os.listdir(folder)\n{STEP}", f"os.path.join(folder)\n{STEP}"),
        ("a stream reads", "streaming: true\n", "streaming: false\n"),
        ("a whole column", "x = self.ds['input_ids'][i]\n", "x = self.ds[i]['input_ids']\n"),
        (
            "DPO runs a second",
            "DPOTrainer(model, ref_model=base)\n",
            "DPOTrainer(model, ref_model=None, peft_config=lora)\n",
        ),
        (
            "lora_dropout above",
            "lora_dropout: 0.1\nmodel: unsloth/Qwen3\n",
            "lora_dropout: 0\nmodel: unsloth/Qwen3\n",
        ),
        (
            "over several nodes",
            "torchrun --nnodes=2 t.py\nfsdp: full_shard\n",
            "torchrun --nnodes=1 t.py\nfsdp: full_shard\n",
        ),
        (
            "DDP looks for",
            "ddp_find_unused_parameters: true\n",
            "ddp_find_unused_parameters: false\n",
        ),
        (
            "held in 4 bits",
            "adapter: qlora\nmicro_batch_size: 1\n",
            "adapter: lora\nmicro_batch_size: 1\n",
        ),
        ("the cache is off", f"use_cache = False\n{ANSWER}", f"use_cache = True\n{ANSWER}"),
        (
            "the cache is off",
            "ids = torch.cat([ids, nxt], dim=1)\nnxt = logits.argmax(-1)\n",
            "x = torch.cat([heads, rows])\n",
        ),
        ("answers that never stop", "max_tokens: 4096\n", "max_tokens: 200\n"),
        ("saved or merged in float32", '"dtype": "float32"\n', '"dtype": "bfloat16"\n'),
        (
            "prompts (?:padded",
            f"tok(x, padding='max_length')\n{ANSWER}",
            f"tok(x, padding=True)\n{ANSWER}",
        ),
        (
            "key-value cache is too small",
            "Sequence group 7 is preempted\n",
            "Sequence group 7 is finished\n",
        ),
        (
            "one row or prompt",
            f"for row in rows: {ANSWER}",
            f"for row in DataLoader(rows): {ANSWER}",
        ),
        (
            "one row or prompt",
            "Running: 1 reqs, Waiting: 0 reqs\n",
            "Running: 64 reqs, Waiting: 0 reqs\n",
        ),
        (
            "left in training mode",
            f"trainer.train()\n{ANSWER}",
            f"trainer.train()\nmodel.eval()\n{ANSWER}",
        ),
        ("with DoRA", "peft_use_dora: true\n", "peft_use_dora: false\n"),
        ("without CUDA graphs", f"{VLLM.strip()} --enforce-eager\n", VLLM),
        (
            "weights that are offloaded",
            "x = load(offload_folder='off')\n",
            "x = load(device_map='cuda')\n",
        ),
        (
            "ZeRO-3 holds",
            f"{ANSWER}config = {{'stage': 3}}\n",
            f"{ANSWER}config = {{'stage': 2}}\n",
        ),
        (
            "computes in float32",
            "BitsAndBytesConfig(load_in_4bit=True)\n",
            "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=t)\n",
        ),
        ("int8", "x = load(load_in_8bit=True)\n", "x = load(load_in_4bit=True)\n"),
        ("never moved to the GPU", f"{LOAD}{ANSWER}", f"{LOAD}model.cuda()\n{ANSWER}"),
        (
            "built without CUDA",
            "pip install llama-cpp-python\n",
            "CMAKE_ARGS=-DGGML_CUDA=on pip install llama-cpp-python\n",
        ),
        ("the context", "PARAMETER num_ctx 131072\n", "PARAMETER num_ctx 8192\n"),
        ("do not fit the GPU", "offloaded 20/33 layers to GPU\n", "loaded 33 layers\n"),
        ("again", f"@app.post('/ask')\ndef ask():\n    {LOAD}", LOAD),
        ("a long prompt", "--no-enable-prefix-caching\n", "--enable-prefix-caching\n"),
        (
            "the client waits",
            "for q in qs:\n    client.create(q)\n",
            "for q in qs:\n    jobs.append(client.create(q))\nawait asyncio.gather(*jobs)\n",
        ),
        ("keep_alive is 0", "OLLAMA_KEEP_ALIVE=0\n", "OLLAMA_KEEP_ALIVE=30m\n"),
        ("one request at a time", "OLLAMA_NUM_PARALLEL=1\n", "OLLAMA_NUM_PARALLEL=8\n"),
        (
            "an async handler",
            "async def ask(q):\n    return model.generate(q)\n",
            "def ask(q):\n    return model.generate(q)\n",
        ),
        (
            "CUDA_LAUNCH_BLOCKING=1",
            "export CUDA_LAUNCH_BLOCKING=1\n",
            "export CUDA_LAUNCH_BLOCKING=0\n",
        ),
        ("beam search", "num_beams: 10\n", "num_beams: 1\n"),
        ("speculative", f"{VLLM.strip()} --speculative-config x\n", VLLM),
        ("without a fast kernel", "--quantization bitsandbytes\n", "--quantization fp8\n"),
        (
            "is split",
            f"{VLLM.strip()} --tensor-parallel-size 4\n",
            f"{VLLM.strip()} --tensor-parallel-size 1\n",
        ),
        (
            "ends when its longest",
            f"tok(x, padding=True)\nargs = dict(max_new_tokens=4096)\n{ANSWER}",
            f"tok(x, padding=True)\nargs = dict(max_new_tokens=64)\n{ANSWER}",
        ),
        (
            "lm_eval asks one row",
            "lm_eval --model hf --tasks gsm8k\n",
            "lm_eval --model hf --tasks gsm8k --batch_size auto\n",
        ),
        ("whose answers end nowhere", "until: []\n", "until: ['###']\n"),
        ("holds float32 or 16-bit", "FROM ./m-f16.gguf\n", "FROM ./m-q4_k_m.gguf\n"),
        (r"llama\.cpp runs more", "llama-server -t 64\n", "llama-server -t 8\n"),
        (
            "one adapter",
            f"{VLLM.strip()} --lora-modules a=x b=y\n",
            f"{VLLM.strip()} --lora-modules a=x --max-loras 4\n",
        ),
        ("pads each adapter", "--max-lora-rank 256\n", "--max-lora-rank 16\n"),
        (
            "StoppingCriteria",
            "class Stop(StoppingCriteria):\n    pass\n",
            "class Stop(Exception):\n    pass\n",
        ),
        ("each worker", "uvicorn app:app --workers 4\n", "uvicorn app:app --workers 1\n"),
        (
            "history of a chat",
            f"history.append(dict(role='user'))\n{ANSWER}",
            f"history.append(dict(role='user'))\nhistory = history[-6:]\n{ANSWER}",
        ),
        (
            "clients ask Ollama",
            "ollama.chat(options={'num_ctx': 4096})\n",
            "ollama.chat(options={'top_k': 40})\n",
        ),
        ("reasons before", f"{VLLM}model: Qwen/QwQ-32B\n", f"{VLLM}model: Qwen/Qwen2.5-32B\n"),
        ("no fast bfloat16", "Tesla T4\nbf16: true\n", "NVIDIA A100\nbf16: true\n"),
        (
            "a schema or grammar",
            "client.ask(response_format=Answer)\n",
            "client.ask(temperature=0)\n",
        ),
    ],
)
def test_a_line_shows_a_cause_and_its_near_miss_does_not(
    sign: str, text: str, near_miss: str
) -> None:
    assert sign in shown(text)
    assert sign not in shown(near_miss)

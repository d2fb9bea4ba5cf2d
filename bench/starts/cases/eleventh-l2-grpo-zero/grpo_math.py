# GRPO on our word problems, 1x H100
import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM_PROMPT = """Respond in the following format:
<reasoning>
...
</reasoning>
<answer>
...
</answer>"""


def extract_xml_answer(text: str) -> str:
    answer = text.split("<answer>")[-1]
    answer = answer.split("</answer>")[0]
    return answer.strip()


def get_problems(path):
    data = load_dataset("json", data_files=path, split="train")
    return data.map(
        lambda x: {
            "prompt": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": x["question"]},
            ],
            "answer": x["answer"].strip(),
        }
    )


def correctness_reward(prompts, completions, answer, **kwargs):
    responses = [c[0]["content"] for c in completions]
    extracted = [extract_xml_answer(r) for r in responses]
    q = prompts[0][-1]["content"]
    print("-" * 20, f"Question:\n{q}", f"\nAnswer:\n{answer[0]}", f"\nResponse:\n{responses[0]}",
          f"\nExtracted:\n{extracted[0]}", flush=True)
    return [2.0 if e == a else 0.0 for e, a in zip(extracted, answer)]


training_args = GRPOConfig(
    output_dir="out/grpo-qwen3b",
    run_name="grpo-qwen3b-word-problems",
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    max_grad_norm=0.1,
    bf16=True,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=512,
    max_steps=60,
    temperature=1.0,
    beta=0.0,
    logging_steps=1,
    save_steps=100,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.35,
    report_to="none",
)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"],
    task_type="CAUSAL_LM",
)

trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    reward_funcs=[correctness_reward],
    args=training_args,
    train_dataset=get_problems("problems.jsonl"),
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out/grpo-qwen3b/final")

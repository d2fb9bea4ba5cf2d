import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"

SYSTEM_PROMPT = """Respond in the following format:
<think>
your reasoning
</think>
<answer>
the final number only
</answer>"""


def get_gsm8k(split="train"):
    data = load_dataset("openai/gsm8k", "main", split=split)

    def to_prompt(row):
        return {
            "prompt": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": row["question"]},
            ],
            "answer": row["answer"],
        }

    return data.map(to_prompt, remove_columns=["question"])


ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)


def extract(text):
    match = ANSWER.search(text)
    if match is None:
        return ""
    return match.group(1).replace(",", "").replace("$", "").strip()


shown = 0


def correctness(prompts, completions, answer, **kwargs):
    global shown
    texts = [c[0]["content"] for c in completions]
    guesses = [extract(t) for t in texts]
    if shown % 40 == 0:
        print("-" * 20)
        print("Question:", prompts[0][-1]["content"])
        print("Gold:", repr(answer[0]))
        print("Response:", texts[0])
        print("Extracted:", repr(guesses[0]))
    shown += 1
    return [1.0 if guess == gold.strip() else 0.0 for guess, gold in zip(guesses, answer)]


args = GRPOConfig(
    output_dir="out/grpo-gsm8k",
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_prompt_length=512,
    max_completion_length=768,
    temperature=1.0,
    max_steps=400,
    logging_steps=5,
    save_steps=100,
    bf16=True,
    gradient_checkpointing=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.3,
    report_to="none",
    seed=3407,
)

trainer = GRPOTrainer(
    model=MODEL,
    reward_funcs=[correctness],
    args=args,
    train_dataset=get_gsm8k(),
    peft_config=LoraConfig(
        r=32,
        lora_alpha=64,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)
trainer.train()
trainer.save_model()

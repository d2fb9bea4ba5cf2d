import torch
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def main():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    name = "meta-llama/Llama-3.3-70B-Instruct"
    tok = AutoTokenizer.from_pretrained(name)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        name, dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            task_type="CAUSAL_LM",
            target_modules=[
                "q_proj",
                "k_proj",
                "v_proj",
                "o_proj",
                "gate_proj",
                "up_proj",
                "down_proj",
            ],
        ),
        autocast_adapter_dtype=False,
    )
    model.print_trainable_parameters()

    def encode(row):
        prompt = tok.apply_chat_template(
            row["messages"][:-1], add_generation_prompt=True, return_dict=False
        )
        full = tok.apply_chat_template(row["messages"], return_dict=False)[:4096]
        labels = [-100] * min(len(prompt), len(full)) + full[len(prompt) :]
        return {"input_ids": full, "attention_mask": [1] * len(full), "labels": labels}

    ds = load_dataset("json", data_files="clauses.jsonl", split="train")
    with accelerator.main_process_first():
        ds = ds.map(encode, remove_columns=ds.column_names)
    loader = DataLoader(ds, batch_size=1, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok))
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4)
    optimizer, loader = accelerator.prepare(optimizer, loader)
    model.train()
    for epoch in range(2):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(epoch, step, loss.item())
    accelerator.save_state("out/state")


if __name__ == "__main__":
    main()

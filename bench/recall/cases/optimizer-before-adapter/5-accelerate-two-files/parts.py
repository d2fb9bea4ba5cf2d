import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler


def base(cfg):
    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16)
    model.config.use_cache = False
    return model, tok


def lora(model, cfg):
    return get_peft_model(
        model,
        LoraConfig(
            r=cfg.lora.r,
            lora_alpha=cfg.lora.alpha,
            lora_dropout=cfg.lora.dropout,
            target_modules=list(cfg.lora.modules),
            task_type="CAUSAL_LM",
        ),
    )


def make_optim(model, cfg, steps):
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.0)
    sched = get_scheduler("cosine", opt, num_warmup_steps=cfg.warmup, num_training_steps=steps)
    return opt, sched

import sys

from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from parts import base, lora, make_optim


def main():
    cfg = OmegaConf.load(sys.argv[1])
    set_seed(cfg.seed)
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=cfg.accumulate)

    model, tok = base(cfg)
    data = load_from_disk(cfg.data)
    loader = DataLoader(
        data, batch_size=cfg.batch, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )
    opt, sched = make_optim(model, cfg, cfg.epochs * len(loader) // cfg.accumulate)
    model = lora(model, cfg)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

    done = 0
    for epoch in range(cfg.epochs):
        model.train()
        for batch in loader:
            with acc.accumulate(model):
                out = model(**batch)
                acc.backward(out.loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            done += 1
            if done % cfg.log_every == 0:
                acc.print(f"{done} loss {out.loss.item():.4f}")

    acc.wait_for_everyone()
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained(cfg.out)
        tok.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()

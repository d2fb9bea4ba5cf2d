"""Batch prediction from a YAML file: python predict.py predict.yaml"""
import sys

import pandas as pd
import torch
from datasets import Dataset
from omegaconf import OmegaConf
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from transformers.pipelines.pt_utils import KeyDataset


def build_pipe(cfg):
    tok = AutoTokenizer.from_pretrained(cfg.model.path, **OmegaConf.to_container(cfg.tokenizer))
    if tok.pad_token is None:
        tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.path, dtype=getattr(torch, cfg.model.dtype), device_map="auto"
    )
    model.eval()
    return pipeline("text-generation", model=model, tokenizer=tok)


def main(path):
    cfg = OmegaConf.load(path)
    pipe = build_pipe(cfg)
    frame = pd.read_csv(cfg.data.input)
    chats = [[{"role": "user", "content": q}] for q in frame[cfg.data.question_column]]
    ds = Dataset.from_dict({"chat": chats})

    answers = []
    for out in tqdm(
        pipe(
            KeyDataset(ds, "chat"),
            batch_size=cfg.generation.batch_size,
            max_new_tokens=cfg.generation.max_new_tokens,
            do_sample=cfg.generation.do_sample,
            return_full_text=False,
        ),
        total=len(ds),
    ):
        answers.append(out[0]["generated_text"].strip())

    frame["answer"] = answers
    frame.to_csv(cfg.data.output, index=False)


if __name__ == "__main__":
    main(sys.argv[1])

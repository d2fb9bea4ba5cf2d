python eval_vllm.py --out preds_base.jsonl
python eval_vllm.py --adapter saves/qwen7b-billing --out preds_lora.jsonl

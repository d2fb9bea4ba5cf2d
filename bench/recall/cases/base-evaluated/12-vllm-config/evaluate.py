import json
import sys
from pathlib import Path

from omegaconf import OmegaConf
from vllm import LLM, SamplingParams


class Evaluation:
    def __init__(self, cfg):
        self.cfg = cfg
        self.adapter = Path(cfg.train.output_dir)
        if not (self.adapter / "adapter_config.json").exists():
            raise SystemExit(f"no adapter in {self.adapter}, train first")
        self.llm = LLM(
            model=cfg.model.name,
            enable_lora=True,
            max_lora_rank=cfg.lora.r,
            max_model_len=cfg.model.max_length,
            dtype="bfloat16",
        )
        self.params = SamplingParams(temperature=0.0, max_tokens=cfg.eval.max_new_tokens)

    def answers(self, rows):
        chats = [[{"role": "user", "content": r["text"]}] for r in rows]
        outs = self.llm.chat(chats, self.params)
        return [o.outputs[0].text.strip() for o in outs]

    def run(self):
        rows = [json.loads(x) for x in Path(self.cfg.eval.file).read_text().splitlines() if x]
        preds = self.answers(rows)
        right = sum(p == r["entities"] for p, r in zip(preds, rows))
        report = {
            "adapter": str(self.adapter),
            "rows": len(rows),
            "exact_match": round(right / len(rows), 4),
        }
        (self.adapter / "test_report.json").write_text(json.dumps(report, indent=2))
        print(report)


if __name__ == "__main__":
    Evaluation(OmegaConf.load(sys.argv[1])).run()

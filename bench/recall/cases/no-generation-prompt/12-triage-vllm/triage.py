import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams

from prompts import PromptBuilder


def main(run, source, target):
    cases = [json.loads(x) for x in Path(source).read_text().splitlines() if x]
    builder = PromptBuilder(run)
    llm = LLM(model=run, dtype="bfloat16", max_model_len=2048, seed=0)
    outs = llm.generate(
        [builder.text(c) for c in cases],
        SamplingParams(temperature=0.0, max_tokens=120),
    )
    with open(target, "w") as f:
        for case, out in zip(cases, outs):
            f.write(json.dumps({"id": case["id"], "triage": out.outputs[0].text.strip()}) + "\n")
    print(f"{len(outs)} cases written to {target}")


if __name__ == "__main__":
    main(*sys.argv[1:4])

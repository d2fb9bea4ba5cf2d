import argparse
import json
import pathlib

from llama_cpp import Llama

# the model was tuned on exactly this layout, with </s> after the answer
LAYOUT = "[INST] {question} [/INST]"


def load(path, n_ctx):
    return Llama(model_path=str(path), n_ctx=n_ctx, n_gpu_layers=-1, seed=0, verbose=False)


def ask(llm, question, settings):
    result = llm(
        LAYOUT.format(question=question.strip()),
        max_tokens=settings["max_tokens"],
        temperature=settings["temperature"],
        top_p=settings["top_p"],
        stop=["</s>"],
        echo=True,
    )
    choice = result["choices"][0]
    return {"answer": choice["text"].strip(), "finish": choice["finish_reason"], "tokens": result["usage"]["completion_tokens"]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--gguf", type=pathlib.Path, default="models/astro-qa-q5_k_m.gguf")
    ap.add_argument("--questions", type=pathlib.Path, default="questions.txt")
    ap.add_argument("--out", type=pathlib.Path, default="answers.jsonl")
    ap.add_argument("--ctx", type=int, default=4096)
    a = ap.parse_args()

    settings = {"max_tokens": 300, "temperature": 0.2, "top_p": 0.95}
    llm = load(a.gguf, a.ctx)
    with a.out.open("w") as out:
        for line in a.questions.read_text().splitlines():
            if not line.strip():
                continue
            rec = {"question": line.strip(), **ask(llm, line, settings)}
            out.write(json.dumps(rec, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

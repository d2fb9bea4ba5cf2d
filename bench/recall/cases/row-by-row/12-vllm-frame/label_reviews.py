"""Labels the held-out reviews with the tuned model and prints the report."""
import pandas as pd
from sklearn.metrics import classification_report
from vllm import LLM, SamplingParams

LABELS = ["positive", "neutral", "negative"]
SYSTEM = "You label product reviews. Answer with one word: positive, neutral or negative."


class Labeler:
    def __init__(self, run, max_model_len=2048):
        self.llm = LLM(model=run, dtype="bfloat16", max_model_len=max_model_len, seed=0)
        self.params = SamplingParams(temperature=0.0, max_tokens=4)

    def label(self, text):
        out = self.llm.chat(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
            self.params,
            use_tqdm=False,
        )
        word = out[0].outputs[0].text.strip().lower()
        return word if word in LABELS else "neutral"


def main():
    df = pd.read_parquet("data/reviews_heldout.parquet")
    print(f"{len(df)} reviews")
    labeler = Labeler("runs/reviews-merged")
    df["predicted"] = df["text"].apply(labeler.label)
    print(classification_report(df["label"], df["predicted"], labels=LABELS, digits=3))
    df.to_parquet("reviews_labelled.parquet")


if __name__ == "__main__":
    main()

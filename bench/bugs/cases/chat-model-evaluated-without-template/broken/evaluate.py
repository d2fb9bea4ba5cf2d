import lm_eval

results = lm_eval.simple_evaluate(
    model="hf",
    model_args="pretrained=out/Qwen2.5-7B-Instruct-tuned,dtype=bfloat16",
    tasks=["ifeval", "gsm8k"],
    batch_size=16,
)
print(results["results"])

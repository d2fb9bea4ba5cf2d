"""Single folder for the inference server."""
from peft import PeftModel

from common import ADAPTER, load_base, load_tokenizer

OUT = "out/notary/server"

if __name__ == "__main__":
    full = PeftModel.from_pretrained(load_base(), ADAPTER).merge_and_unload(progressbar=True, safe_merge=True)
    full.save_pretrained(OUT, max_shard_size="4GB")
    load_tokenizer().save_pretrained(OUT)
    print("written to", OUT)

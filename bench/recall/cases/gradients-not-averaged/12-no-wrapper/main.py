import sys

import yaml
from datasets import load_from_disk

from tuner import Tuner


def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    # the rows hold input_ids, attention_mask and labels
    rows = load_from_disk(cfg["data"])
    Tuner(cfg).fit(rows)


if __name__ == "__main__":
    main(sys.argv[1])

import argparse

import torch

from decode import Sampler


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--run", default="runs/shop-assistant")
    p.add_argument("--banned", nargs="*", default=["refund", "lawyer"])
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    sampler = Sampler(args.run, banned=args.banned)

    messages = []
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            break
        if not line:
            continue
        if line == "/new":
            messages = []
            continue
        messages.append({"role": "user", "content": line})
        answer = sampler.reply(messages)
        messages.append({"role": "assistant", "content": answer})
        print(answer)


if __name__ == "__main__":
    main()

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from stream import PackedStream, open_corpus

NAME = "Qwen/Qwen2.5-1.5B"
STEPS, ACCUM = 4000, 4


def main():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))

    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)

    data = PackedStream(open_corpus("HuggingFaceFW/fineweb-edu", "sample-10BT", seed=0), tok, 2048)
    loader = iter(DataLoader(data, batch_size=4))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1)
    sched = get_cosine_schedule_with_warmup(opt, 100, STEPS)

    model.train()
    for step in range(STEPS):
        for _ in range(ACCUM):
            batch = {k: v.to(local) for k, v in next(loader).items()}
            loss = model(**batch).loss
            (loss / ACCUM).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if step % 20 == 0 and dist.get_rank() == 0:
            print(step, loss.item(), flush=True)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id="out/fineweb")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

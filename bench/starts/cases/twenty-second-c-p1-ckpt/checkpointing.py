import os

import torch
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save_checkpoint(model, tok, path):
    os.makedirs(path, exist_ok=True)
    cfg = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):
        state = model.state_dict()
    state = {k: v.to(torch.bfloat16) for k, v in state.items()}
    model.module.save_pretrained(path, state_dict=state)
    tok.save_pretrained(path)

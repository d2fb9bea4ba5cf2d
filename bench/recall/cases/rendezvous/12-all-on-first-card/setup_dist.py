import atexit

import torch
import torch.distributed as dist


def start():
    """Join the process group; returns rank, world size and device."""
    device = torch.device("cuda:0")
    torch.cuda.set_device(device)
    dist.init_process_group(backend="nccl")
    atexit.register(dist.destroy_process_group)
    return dist.get_rank(), dist.get_world_size(), device

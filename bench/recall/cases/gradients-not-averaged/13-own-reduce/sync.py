import torch.distributed as dist


def same_start(weights):
    for w in weights:
        dist.broadcast(w.data, src=0)


def mean_gradients(weights):
    world = dist.get_world_size()
    for w in weights:
        if w.grad is not None:
            dist.all_reduce(w.grad, op=dist.ReduceOp.SUM)
            w.grad.div_(world)

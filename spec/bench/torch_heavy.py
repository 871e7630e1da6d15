"""The heavy-layer step of examples/heavylayer.lua in PyTorch: 20 x Linear(4096, 4096) + ReLU, batch 32, the input
needs a gradient, loss = sum. One step: zero_grad, forward, backward. Prints median seconds and resident bytes.

usage: torch_heavy.py [regions of n, 0: none] [steps] [width] [depth] [batch]
Tuned: OMP threads as given in THREADS, and
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184
"""
import os
import resource
import statistics
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

numbers = [int(a) for a in sys.argv[1:]] + [0, 7, 4096, 20, 32][len(sys.argv) - 1:]
region, steps, width, depth, batch = numbers
torch.set_num_threads(int(os.environ.get("THREADS", os.cpu_count())))
layers = [m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers)
x = torch.randn(batch, width, requires_grad=True)


def forward(v):
    if region == 0:
        return model(v)
    for at in range(0, len(layers), 2 * region):
        v = checkpoint(torch.nn.Sequential(*layers[at:at + 2 * region]), v, use_reentrant=False)
    return v


def step():
    start = time.perf_counter()
    model.zero_grad(set_to_none=True)
    x.grad = None
    forward(x).sum().backward()
    return time.perf_counter() - start


step(), step()
times = [step() for _ in range(steps)]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"torch {torch.__version__} regions {region} threads {torch.get_num_threads()} "
      f"median {statistics.median(times):.3f} s (min {min(times):.3f}) peak RSS {peak:.0f} MiB")

"""Measures in PyTorch what the checks of a GPU compare with: steps and peak bytes of the network of heavy layers, and
rates of products. Prints lines `NAME VALUE`. Runs only where a Python with PyTorch sees a GPU; nothing else needs it.

  torch_rates.py heavy DEPTH WIDTH BATCH    ms and peak bytes of forward + backward + SGD, f32
  torch_rates.py products                   TF/s of each line `DTYPE M N K` of standard input
"""
import sys
import statistics

import torch
from torch import nn


def milliseconds(fn, turns=10, warmup=3):
    for _ in range(warmup):
        fn()
    times = []
    for _ in range(turns):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def heavy(depth, width, batch):
    torch.manual_seed(1)
    model = nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(batch, width, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    print("peak", torch.cuda.max_memory_allocated())
    print("reserved", torch.cuda.max_memory_reserved())
    print("ms", milliseconds(step))


def products():
    torch.backends.cuda.matmul.allow_tf32 = False
    for line in sys.stdin:
        dtype, m, n, k = line.split()
        m, n, k = int(m), int(n), int(k)
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        a = torch.randn(m, k, device="cuda").to(kind)
        b = torch.randn(n, k, device="cuda").to(kind)
        out = torch.empty(m, n, device="cuda", dtype=kind)

        def many():
            for _ in range(10):
                torch.matmul(a, b.t(), out=out)

        print("%s_%d_%d_%d" % (dtype, m, n, k), 2.0 * m * n * k / (milliseconds(many) / 10 * 1e-3) / 1e12)


if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")
if sys.argv[1] == "heavy":
    heavy(*map(int, sys.argv[2:5]))
else:
    products()

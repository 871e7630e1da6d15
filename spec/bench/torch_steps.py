"""Steps in PyTorch for spec/bench/rival.lua: one process, commands on standard input, so that two programs can take
turns on one machine. Every answer is one line. Also the process that measures PyTorch's live bytes.

  build NAME A B C ...  heavy WIDTH DEPTH BATCH REGION | mlp WIDTH DEPTH BATCH | gpt BLOCKS D HEADS T BATCH RECOMPUTE
  step                  seconds of one step
  peak                  bytes: the most resident since before the model was built, less what was resident then
  quit

Environment: THREADS. For live bytes run it with MALLOC_MMAP_THRESHOLD_=65536, so that what is freed leaves the process;
otherwise the peak is that of the allocator's heap. "Tuned" steps run with
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184
"""
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def status(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


class Chain(nn.Module):
    """Linear + ReLU `depth` times, in regions of `region` layers (0: none)."""

    def __init__(self, width, depth, region, outputs=None):
        super().__init__()
        sizes = [width] * depth + [outputs or width]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.region, self.bare_last = region, outputs is not None

    def stretch(self, x, first, last):
        for i in range(first, last):
            x = self.layers[i](x)
            if not (self.bare_last and i == len(self.layers) - 1):
                x = F.relu(x)
        return x

    def forward(self, x):
        n = len(self.layers)
        if self.region == 0:
            return self.stretch(x, 0, n)
        for first in range(0, n, self.region):
            x = checkpoint(self.stretch, x, first, min(n, first + self.region), use_reentrant=False)
        return x


class Block(nn.Module):
    """Attention and MLP as examples/gptstack.lua has them; attention is PyTorch's own function."""

    def __init__(self, d, heads, p):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads, self.p = heads, p

    def attend(self, x):
        b, t, d = x.shape
        q, k, v = (u.view(b, t, self.heads, d // self.heads).transpose(1, 2) for u in self.qkv(x).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x):
        x = x + F.dropout(self.attend(self.ln1(x)), self.p)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), self.p)


class Stack(nn.Module):
    def __init__(self, blocks, d, heads, recompute):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d, heads, 0.1) for _ in range(blocks))
        self.recompute = recompute

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


def build_heavy(width, depth, batch, region):
    model, x = Chain(width, depth, region), torch.randn(batch, width, requires_grad=True)

    def step():
        model.zero_grad(set_to_none=True)
        x.grad = None
        model(x).sum().backward()

    return step


def build_mlp(width, depth, batch):
    model = Chain(width, depth - 1, 0, outputs=10)
    x, labels = torch.randn(batch, width), torch.randint(10, (batch,))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), labels).backward()
        opt.step()

    return step


def build_gpt(blocks, d, heads, t, batch, recompute):
    model, x = Stack(blocks, d, heads, recompute == 1), torch.randn(batch, t, d)

    def step():
        model.zero_grad(set_to_none=True)
        model(x).pow(2).mean().backward()

    return step


def start_measuring():
    """Resident bytes now; VmHWM starts anew."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return status("VmRSS")


def load_the_rest():
    """What PyTorch imports at the first checkpoint and the first Adam is code, not the model's memory."""
    layer = nn.Linear(2, 2)
    opt = torch.optim.Adam(layer.parameters())
    checkpoint(layer, torch.randn(2, 2), use_reentrant=False).sum().backward()
    opt.step()


builders = {"heavy": build_heavy, "mlp": build_mlp, "gpt": build_gpt}


def main():
    torch.set_num_threads(int(os.environ.get("THREADS", os.cpu_count())))
    torch.manual_seed(1)
    print("ready", torch.__version__, torch.get_num_threads(), flush=True)
    load_the_rest()
    base, step = start_measuring(), None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "build":
            step = None  # the model before it is gone before the next is made
            base = start_measuring()
            step = builders[words[1]](*[int(w) for w in words[2:]])
            print("built", flush=True)
        elif words[0] == "step":
            start = time.perf_counter()
            step()
            print(time.perf_counter() - start, flush=True)
        elif words[0] == "peak":
            print(status("VmHWM") - base, flush=True)
        else:
            break


main()

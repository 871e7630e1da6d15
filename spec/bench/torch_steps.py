"""Steps in PyTorch for spec/bench/rival.lua: one process, commands on standard input, so that two programs can take
turns on one machine. Every answer is one line.

  build NAME A B C ...  how many numbers its parameters are. heavy WIDTH DEPTH BATCH REGION UPDATE
                        | mlp WIDTH DEPTH BATCH | gpt BLOCKS D HEADS T BATCH RECOMPUTE BF16
                        | resnet LAYERS SIZE BATCH RECOMPUTE | unet WIDTH STAGES SIZE BATCH RECOMPUTE
                        | vit SIZE PATCH LAYERS HEADS D BATCH RECOMPUTE
  turn SECONDS          seconds of a step: of as many as these seconds take, one at least
  live NAME A B C ...   bytes: the most that was alive at once while the model was made and took three steps
  quit

Environment: THREADS; FUSED=1 for what PyTorch offers but does not choose: the fused optimizers, and channels_last for
images and the weights of convolutions. "Tuned" steps run with
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184

Live bytes are exact: the profiler reports every allocation and every release of PyTorch's CPU allocator, and it watches
from before the first parameter is made, so that their running sum is what is alive. Two things are asserted in every
such run: a case small enough for the head (check_live), and that after the steps the sum is, to the byte, the
storage of the tensors that must be alive. What BLAS and oneDNN take for themselves is not in it.
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

import torch
import torch.nn.functional as F
import torch_models
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

FUSED = True if os.environ.get("FUSED") == "1" else None


class Chain(nn.Module):
    """Linear + ReLU `depth` times, in regions of `region` layers (0: none); with `outputs` the last Linear is bare."""

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


def with_gradients(model, *others):
    """What must be alive after a step."""
    parameters = list(model.parameters())
    return [*parameters, *others, *(p.grad for p in parameters + list(others) if p.grad is not None)]


def build_heavy(width, depth, batch, region, update):
    """update: with the three lines of SGD."""
    model, x = Chain(width, depth, region), torch.randn(batch, width, requires_grad=True)
    opt = torch.optim.SGD(model.parameters(), lr=1e-4, fused=FUSED) if update else None

    def step():
        model.zero_grad(set_to_none=True)
        x.grad = None
        model(x).sum().backward()
        if opt:
            opt.step()

    return step, lambda: with_gradients(model, x)


def build_mlp(width, depth, batch):
    model = Chain(width, depth, 0, outputs=10)
    x, labels = torch.randn(batch, width), torch.randint(10, (batch,))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=FUSED)

    def step():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), labels).backward()
        opt.step()

    def alive():
        return with_gradients(model, x, labels) + [t for state in opt.state.values() for t in state.values()]

    return step, alive


def build_gpt(blocks, d, heads, t, batch, recompute, bf16):
    model, x = Stack(blocks, d, heads, recompute == 1), torch.randn(batch, t, d)

    def step():
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16 == 1):
            loss = model(x).pow(2).mean()
        loss.backward()

    return step, lambda: with_gradients(model, x)


def recompute(modules):
    """Runs each module inside a checkpoint from now on."""
    for m in modules:
        forward = m.forward
        m.forward = lambda *x, forward=forward: checkpoint(forward, *x, use_reentrant=False)


def image_step(model, shape, labels, make_optimizer, dense=False):
    x = torch.randn(shape)
    if FUSED:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    opt = make_optimizer(model.parameters())

    def step():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), labels).backward()
        opt.step()

    def alive():
        states = [t for state in opt.state.values() for t in state.values() if t is not None]
        return with_gradients(model, x, labels) + list(model.buffers()) + states

    return step, alive


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=FUSED)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=FUSED)


def build_resnet(layers, size, batch, again):
    counts = {18: [2, 2, 2, 2], 50: [3, 4, 6, 3]}[layers]
    block, factor = (torch_models.BasicBlock, 1) if layers == 18 else (torch_models.Bottleneck, 4)
    model = torch_models.ResNet(block, factor, counts, 64, True, 1000)
    if again:
        recompute(m for m in model.modules() if isinstance(m, block))
    return image_step(model, (batch, 3, size, size), torch.randint(1000, (batch,)), sgd)


def build_unet(width, stages, size, batch, again):
    model = torch_models.UNet(width, stages, 2, False)
    if again:
        recompute([*model.down, *model.up])
    return image_step(model, (batch, 3, size, size), torch.randint(2, (batch, size, size)), adamw)


def build_vit(size, patch, layers, heads, d, batch, again):
    model = torch_models.ViT(size, patch, layers, heads, d, 4 * d, 1000)
    if again:
        recompute(model.blocks)
    return image_step(model, (batch, 3, size, size), torch.randint(1000, (batch,)), adamw)


def watch(fn):
    """Calls fn; (the most bytes alive at once, bytes alive at the end), of what was allocated in it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = fn()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak, live, kept


def check_live():
    """w, exp(w) and the gradient of w are n numbers each; the loss and its gradient one each; w, its gradient and the
    loss are left. And of 3 arrays, the second goes before the third comes."""
    n = 1000

    def gradient():
        w = torch.ones(n, requires_grad=True)
        loss = w.exp().sum()
        loss.backward()
        return w, loss

    def replaced():
        a, b = torch.empty(n), torch.empty(3 * n)
        del b
        return a, torch.empty(2 * n)

    for fn, expected in ((gradient, (12 * n + 8, 8 * n + 4)), (replaced, (16 * n, 12 * n))):
        found = watch(fn)[:2]
        assert found == expected, f"live bytes of {fn.__name__}: {found}, by hand {expected}"


def live_bytes(build):
    check_live()

    def three_steps():
        step, alive = build()
        for _ in range(3):
            step()
        return alive()

    peak, live, tensors = watch(three_steps)
    expected = sum(t.untyped_storage().nbytes() for t in tensors)
    assert live == expected, f"{live} bytes are alive after the steps, {expected} in the tensors that must be"
    return peak


def load_the_rest():
    """What PyTorch imports at the first checkpoint and the first Adam is not part of a step."""
    layer = nn.Linear(2, 2)
    opt = torch.optim.Adam(layer.parameters())
    checkpoint(layer, torch.randn(2, 2), use_reentrant=False).sum().backward()
    opt.step()


def libraries():
    """Who multiplies: the libraries' lines of PyTorch's own report, and the class of its own loops, without spaces."""
    found = re.findall(r"(Math Kernel Library|MKL-DNN|OpenBLAS)\D*([\d.]+)", torch.__config__.show())
    names = {"Math Kernel Library": "MKL", "MKL-DNN": "oneDNN"}
    loops = torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu") else "unknown"
    return ",".join([f"{names.get(name, name)}-{version}" for name, version in found] + [f"loops-of-{loops}"])


builders = {"heavy": build_heavy, "mlp": build_mlp, "gpt": build_gpt, "resnet": build_resnet, "unet": build_unet,
            "vit": build_vit}


def maker(words):
    return lambda: builders[words[0]](*[int(w) for w in words[1:]])


def begin():
    sys.stdout = os.fdopen(os.dup(1), "w")  # answers; what libraries print goes to the error stream
    os.dup2(2, 1)
    torch.set_num_threads(int(os.environ.get("THREADS", os.cpu_count())))
    torch.manual_seed(1)
    print("ready", torch.__version__, torch.get_num_threads(), libraries(), flush=True)
    load_the_rest()


def seconds_a_step(step, least):
    """Steps one after the other for `least` seconds, one at least: seconds of each."""
    start, steps, seconds = time.perf_counter(), 0, 0
    while steps == 0 or seconds < least:
        step()
        steps, seconds = steps + 1, time.perf_counter() - start
    return seconds / steps


def main():
    begin()
    step = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "build":
            step = None  # the model before it is gone before the next is made
            step, alive = maker(words[1:])()
            print(sum(t.numel() for t in alive() if isinstance(t, nn.Parameter)), flush=True)
        elif words[0] == "turn":
            print(seconds_a_step(step, float(words[1])), flush=True)
        elif words[0] == "live":
            print(live_bytes(maker(words[1:])), flush=True)
        else:
            break


if __name__ == "__main__":
    main()

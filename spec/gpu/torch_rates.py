"""Measures in PyTorch what the checks of a GPU compare with. Prints lines `NAME VALUE`. Runs only where a Python with
PyTorch sees a GPU; nothing else needs it.

  torch_rates.py heavy DEPTH WIDTH BATCH    ms and peak bytes of forward + backward + SGD of heavy layers, f32
  torch_rates.py products                   TF/s of each line `DTYPE M N K` of standard input
  torch_rates.py attention                  TF/s, causal, bf16, of each line `BATCH HEADS SIZE T` of standard input:
                                            scaled_dot_product_attention, and `grad_` its gradient
  torch_rates.py gpt SIZE BATCH             ms and peak bytes of a step of GPT-2 in bf16 (autocast) with fused AdamW,
                                            eager; then compiled_ms and compiled_peak, its blocks and its head compiled
  torch_rates.py recurrent T B IN HIDDEN    lstm_ms, lstm_peak, gru_ms, gru_peak: forward + backward of one layer, f32
"""
import signal
import statistics
import sys

import torch
from torch import nn
from torch.nn import functional as F

COMPILING = 60  # seconds after which the process ends, with what it has printed
GPT = {"124M": (12, 12, 768), "774M": (36, 20, 1280), "tiny": (3, 2, 32)}  # layers, heads, d
VOCAB, CONTEXT = 50257, 1024


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


def report(step, prefix=""):
    """Prints peak bytes of the second step, and the median milliseconds of those after it."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    print(prefix + "peak", torch.cuda.max_memory_allocated())
    print(prefix + "reserved", torch.cuda.max_memory_reserved())
    print(prefix + "ms", milliseconds(step), flush=True)


def heavy(depth, width, batch):
    torch.manual_seed(1)
    model = nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(batch, width, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    report(step)


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


def attention():
    for line in sys.stdin:
        batch, heads, size, t = map(int, line.split())
        q, k, v, dy = (torch.randn(batch, heads, t, size, device="cuda").bfloat16() for _ in range(4))
        given = [z.requires_grad_() for z in (q, k, v)]
        y = F.scaled_dot_product_attention(*given, is_causal=True)

        def forward():
            with torch.no_grad():
                for _ in range(10):
                    F.scaled_dot_product_attention(*given, is_causal=True)

        def backward():
            for _ in range(10):
                torch.autograd.grad(y, given, dy, retain_graph=True)

        square, name = batch * heads * t * t * size / 2, "_".join(line.split())
        print(name, 4 * square / (milliseconds(forward) / 10 * 1e-3) / 1e12)
        print("grad_" + name, 10 * square / (milliseconds(backward) / 10 * 1e-3) / 1e12)


class Block(nn.Module):
    """A block of GPT-2: norms before attention and MLP, both of which add to the stream. x: (B, T, d)."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Head(nn.Module):
    """The last norm, the product with the token table, and the mean loss."""

    def __init__(self, table, d):
        super().__init__()
        self.table, self.norm = table, nn.LayerNorm(d)

    def forward(self, x, labels):
        return F.cross_entropy(F.linear(self.norm(x), self.table).flatten(0, 1), labels.flatten())


class Transformer(nn.Module):
    def __init__(self, layers, heads, d):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(CONTEXT, d)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.head = Head(self.wte.weight, d)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x, labels)


def gpt(size, batch):
    torch.manual_seed(1)
    model = Transformer(*GPT[size]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, labels = (torch.randint(VOCAB, (batch, CONTEXT), device="cuda") for _ in range(2))

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids, labels)
        loss.backward()
        optimizer.step()

    report(step)
    # All blocks are alike, so what is compiled for one serves the others.
    signal.alarm(COMPILING)
    for module in [*model.blocks, model.head]:
        module.compile()
    report(step, "compiled_")


def recurrent(steps, batch, inputs, hidden):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for name, kind in (("lstm", nn.LSTM), ("gru", nn.GRU)):
        layer, x = kind(inputs, hidden).cuda(), torch.randn(steps, batch, inputs, device="cuda")

        def step():
            layer.zero_grad()
            layer(x)[0].square().sum().backward()

        report(step, name + "_")


if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")
if sys.argv[1] == "gpt":
    gpt(sys.argv[2], int(sys.argv[3]))
else:
    measure = {"heavy": heavy, "products": products, "attention": attention, "recurrent": recurrent}[sys.argv[1]]
    measure(*map(int, sys.argv[2:]))

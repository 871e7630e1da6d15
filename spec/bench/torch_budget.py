"""The GPT stack of spec/bench/budget.lua in PyTorch, under every way it has to keep less: one process, commands on
standard input, every answer one line. The process, its settings and its "live" bytes are those of torch_steps.py.

  network BLOCKS D HEADS T BATCH   how many numbers its parameters are; then the names of the arms, between ';'
  prepare ARM                      "ok" after a step (compiled: two), or "no: " and why it does not run here
  step ARM                         seconds of one step: zero_grad, forward, loss = mean of squares, backward
  live ARM                         bytes: the most that was alive at once while the model was made and took two steps;
                                   or "no: " and why
  quit

The arms: checkpoint_sequential at every number of segments that makes other segments; checkpoint around each block,
around its attention, around its MLP; selective checkpointing of each block, which saves what the named ATen ops give;
and the compiler, whose partitioner is given a share of what can be saved (activation_memory_budget, 1: no limit).
Attention computes with dropout on a CPU by stored T x T scores, which only the compiler could avoid. Random state is
kept and set again, as PyTorch does unless told not to: gradients are exact.
"""
import functools
import os
import sys
import time

import torch
import torch._dynamo
import torch._functorch.config
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

import torch_steps

aten = torch.ops.aten
LINEAR = [aten.addmm.default, aten.mm.default]
PRODUCTS = LINEAR + [aten.bmm.default, aten.baddbmm.default]


class Block(torch_steps.Block):
    """The block of torch_steps.py with its halves apart, so that one of them can be a region."""

    def first(self, x):
        return nn.functional.dropout(self.attend(self.ln1(x)), self.p)

    def second(self, x):
        return nn.functional.dropout(self.down(nn.functional.gelu(self.up(self.ln2(x)))), self.p)


def region(fn, x, **more):
    return checkpoint(fn, x, use_reentrant=False, **more)


def selective(block, x, ops):
    return region(block, x, context_fn=functools.partial(create_selective_checkpoint_contexts, ops))


def each(fn):
    def forward(net, x):
        for block in net:
            x = fn(block, x)
        return x

    return forward


def sequential(segments):
    return lambda net, x: checkpoint_sequential(net, segments, x, use_reentrant=False)


def attention(block, x):
    x = x + region(block.first, x)
    return x + block.second(x)


def mlp(block, x):
    x = x + block.first(x)
    return x + region(block.second, x)


def plain(net, x):
    return net(x)


def arms_of(blocks):
    """Name -> forward(net, x), and the share of the compiler's budget, None where nothing is compiled."""
    arms = {"everything saved": (plain, None)}
    for k in range(2, blocks + 1):  # k - 1 regions of blocks // k; the last segment takes the rest and is none
        arms[f"checkpoint_sequential, {k} segments"] = sequential(k), None
    arms["checkpoint of each block"] = each(region), None
    arms["checkpoint of each attention"] = each(attention), None
    arms["checkpoint of each MLP"] = each(mlp), None
    arms["selective, linear layers saved"] = each(lambda block, x: selective(block, x, LINEAR)), None
    arms["selective, all products saved"] = each(lambda block, x: selective(block, x, PRODUCTS)), None
    for share in (1.0, 0.75, 0.5, 0.25):
        arms[f"compiled, memory budget {share:g}"] = plain, share
    arms["compiled, checkpoint of each block"] = each(region), 1.0
    return arms


class Bench:
    def __init__(self, blocks, d, heads, t, batch):
        self.size, self.arms, self.compiled = (blocks, d, heads, t, batch), arms_of(blocks), {}
        self.net, self.x = self.make()

    def make(self):
        blocks, d, heads, t, batch = self.size
        return nn.Sequential(*(Block(d, heads, 0.1) for _ in range(blocks))), torch.randn(batch, t, d)

    def forward_of(self, name):
        how, share = self.arms[name]
        if share is None:
            return how
        if name not in self.compiled:
            # a function of its own: the compiler keeps what it made by code object
            scope = {"how": how}
            exec("def forward(net, x): return how(net, x)", scope)
            self.compiled[name] = torch.compile(scope["forward"])
        torch._functorch.config.activation_memory_budget = share
        return self.compiled[name]

    def step(self, name, net=None, x=None):
        net, x = (self.net, self.x) if net is None else (net, x)
        net.zero_grad(set_to_none=True)
        self.forward_of(name)(net, x).pow(2).mean().backward()

    def prepare(self, name):
        try:
            self.step(name)
            if self.arms[name][1] is not None:
                self.step(name)
        except Exception as error:  # whatever a compiler lacks here
            return "no: " + " ".join(str(error).split())[:200]
        return "ok"

    def live(self, name):
        said = self.prepare(name)  # what a compiler allocates while it works is not the step's
        if said != "ok":
            return said

        def two_steps():
            net, x = self.make()
            for _ in range(2):
                self.step(name, net, x)
            return torch_steps.with_gradients(net, x)

        peak, live, tensors = torch_steps.watch(two_steps)
        expected = sum(t.untyped_storage().nbytes() for t in tensors)
        assert live == expected, f"{name}: {live} bytes are alive after the steps, {expected} in what must be"
        return peak


def main():
    torch_steps.begin()
    torch_steps.check_live()
    bench = None
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        if command == "network":
            bench = Bench(*[int(n) for n in rest.split()])
            print(sum(p.numel() for p in bench.net.parameters()), ";".join(bench.arms), flush=True)
        elif command == "prepare":
            print(bench.prepare(rest), flush=True)
        elif command == "step":
            start = time.perf_counter()
            bench.step(rest)
            print(time.perf_counter() - start, flush=True)
        elif command == "live":
            print(bench.live(rest), flush=True)
        else:
            break


os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
main()

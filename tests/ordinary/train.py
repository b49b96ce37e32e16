"""Train one small linear transformer the ordinary way, and write a canonical checkpoint of it.

Adam in float32 on factored heads W_q, W_k, W_v, W_o, minibatches drawn fresh, gradients clipped, every token
attending to its keys. It stands alone: it neither imports the package nor shares code with it, so that neither can
hide a mistake of the other.

    score_h(i, j) = <W_q e_i, W_k e_j>        e_i <- e_i + s sum_h sum_j score_h(i, j) W_o W_v e_j

    python tests/ordinary/train.py out.safetensors --layers 2 --heads 2 --dim 4 --steps 3000

The task: w ~ N(0, I), x ~ N(0, C), y = <w, x> + sigma xi, and the target is <w, x> of the query, without noise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

HELD_OUT = 16_384  # prompts that the recorded losses are taken over
HELD_OUT_SEED = 1_000_000  # plus the seed of the run: never one that a run is trained with
CHUNK = 4096
WARM_UP = 0.05  # of the steps, in which a cosine schedule rises


def noise_law(text: str) -> dict[str, object]:
    """``0.5`` (fixed), ``0:1`` (uniform) or ``0,1,2`` (choice)."""
    if ":" in text:
        return {"uniform": [float(value) for value in text.split(":")]}
    values = [float(value) for value in text.split(",")]
    return {"choice": values} if len(values) > 1 else {"fixed": values[0]}


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = out.add_argument
    add("out", type=Path, help="where the checkpoint goes")
    add("--layers", type=int, default=1)
    add("--loops", type=int, default=1, help="the layers are applied so often, one set of weights for all rounds")
    add("--heads", type=int, default=1)
    add("--head-size", type=int, help="rows of W_q, W_k and W_v; left out: the size of a token")
    add("--dim", type=int, default=4, help="size of x; a token is (x, y)")
    add("--context", type=int, default=15, help="examples in a prompt")
    add("--keys", choices=("context", "all"), default="context")
    add("--scale", choices=("1", "1/n"), default="1/n")
    add("--sign", type=int, choices=(1, -1), default=1, help="the prediction is sign * y of the query")
    add("--noise", type=noise_law, default="0:1", help="sigma: 0.5 (fixed), 0:1 (uniform) or 0,1,2 (choice)")
    add("--covariance", type=float, nargs="+", help="variances of x, one for each of its entries")
    add("--steps", type=int, default=3000)
    add("--batch", type=int, default=512)
    add("--rate", type=float, default=5e-3, help="learning rate of Adam")
    add("--schedule", choices=("cosine", "constant"), default="cosine")
    add("--clip", type=float, default=1.0, help="norm that gradients are clipped to")
    add("--init", type=float, default=0.5, help="weights start as N(0, init^2 / inputs)")
    add("--seed", type=int, default=0)
    add("--every", type=int, help="also write a checkpoint after so many steps, as OUT-STEP.safetensors")
    return out


def draw(given: argparse.Namespace, count: int, generator: torch.Generator, dtype: torch.dtype) -> dict[str, Tensor]:
    """``count`` prompts: the examples (x, y), the query, its target, and sigma."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    ((kind, values),) = given.noise.items()
    if kind == "uniform":
        sigma = values[0] + (values[1] - values[0]) * torch.rand(count, generator=generator, dtype=dtype)
    else:
        levels = torch.tensor(values if kind == "choice" else [values], dtype=dtype)
        sigma = levels[torch.randint(len(levels), (count,), generator=generator)]
    w, x = normal(count, given.dim, 1), normal(count, given.context + 1, given.dim)
    if given.covariance:
        x = x * torch.tensor(given.covariance, dtype=dtype).sqrt()
    clean = (x @ w).squeeze(-1)
    y = clean[:, :-1] + sigma[:, None] * normal(count, given.context)
    return {"x": x[:, :-1], "y": y, "query": x[:, -1], "target": clean[:, -1], "sigma": sigma}


def tokens_of(prompts: dict[str, Tensor]) -> Tensor:
    """(x, y) of every example, then (x, 0) of the query: (prompt, token, D)."""
    x = torch.cat([prompts["x"], prompts["query"][:, None]], 1)
    y = torch.cat([prompts["y"], torch.zeros_like(prompts["target"])[:, None]], 1)
    return torch.cat([x, y[..., None]], -1)


def heads_of(tokens: Tensor, w: Tensor) -> Tensor:
    """W e for every head and token: (prompt, head, token, size)."""
    return (tokens @ w.flatten(0, 1).mT).unflatten(-1, w.shape[:2]).transpose(1, 2)


def predict(given: argparse.Namespace, layers: Sequence[Sequence[Tensor]], tokens: Tensor) -> Tensor:
    """The prediction for every prompt. A layer is W_q, W_k, W_v, each (heads, size, D), and W_o, (heads, D, size)."""
    scale = 1.0 if given.scale == "1" else 1.0 / given.context
    for number, (w_q, w_k, w_v, w_o) in enumerate(layers, 1):
        keys = tokens[:, : given.context] if given.keys == "context" else tokens
        if number == len(layers):
            tokens = tokens[:, -1:]  # of the last layer only the query is read
        scores = heads_of(tokens, w_q) @ heads_of(keys, w_k).mT  # (prompt, head, token, key)
        values = (scores @ heads_of(keys, w_v)).transpose(1, 2).flatten(2)  # (prompt, token, head * size)
        tokens = tokens + scale * (values @ w_o.mT.flatten(0, 1))
    return given.sign * tokens[:, 0, -1]


def start(given: argparse.Namespace, generator: torch.Generator) -> list[list[Tensor]]:
    size, width = given.head_size or given.dim + 1, given.dim + 1
    shapes = [(given.heads, size, width)] * 3 + [(given.heads, width, size)]
    return [
        [
            (given.init / math.sqrt(shape[-1]) * torch.randn(*shape, generator=generator)).requires_grad_()
            for shape in shapes
        ]
        for _ in range(given.layers)
    ]


def rate(given: argparse.Namespace, step: int) -> float:
    if given.schedule == "constant":
        return given.rate
    rise = max(1, round(WARM_UP * given.steps))
    if step < rise:
        return given.rate * (step + 1) / rise
    return given.rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / (given.steps - rise)))


def products(layers: Sequence[Sequence[Tensor]]) -> tuple[Tensor, Tensor]:
    """Q = W_q^T W_k and P = W_o W_v in float32, (layers, heads, D, D)."""
    with torch.no_grad():
        Q = torch.stack([w_q.double().mT @ w_k.double() for w_q, w_k, _, _ in layers])
        P = torch.stack([w_o.double() @ w_v.double() for _, _, w_v, w_o in layers])
    return Q.float().contiguous(), P.float().contiguous()


def ridge(prompts: dict[str, Tensor]) -> Tensor:
    """The best prediction there is: ridge regression with the true sigma of the prompt."""
    x, y = prompts["x"], prompts["y"][..., None]
    damping = prompts["sigma"].square()[:, None, None] * torch.eye(x.shape[-1], dtype=x.dtype)
    return (prompts["query"][:, None] @ torch.linalg.solve(x.mT @ x + damping, x.mT @ y)).flatten()


def measure(given: argparse.Namespace, Q: Tensor, P: Tensor) -> dict[str, float]:
    """Mean squared errors of what is written, of zero and of ridge on the same held-out prompts, in float64.

    ``trimmed`` leaves out the worst one in a thousand prompts of the network; ``stderr`` is that of ``loss``.
    """
    generator = torch.Generator().manual_seed(HELD_OUT_SEED + given.seed)
    identity = torch.eye(Q.shape[-1], dtype=torch.float64).expand_as(Q[0])
    layers = [(identity, q, p, identity) for q, p in zip(Q.double(), P.double(), strict=True)]
    parts: dict[str, list[Tensor]] = {"loss": [], "zero": [], "ridge": []}
    for _ in range(HELD_OUT // CHUNK):
        prompts = draw(given, CHUNK, generator, torch.float64)
        target = prompts["target"]
        parts["loss"].append((predict(given, layers, tokens_of(prompts)) - target).square())
        parts["zero"].append(target.square())
        parts["ridge"].append((ridge(prompts) - target).square())
    errors = {name: torch.cat(values) for name, values in parts.items()}
    out = {name: float(values.mean()) for name, values in errors.items()}
    out["stderr"] = float(errors["loss"].std() / math.sqrt(HELD_OUT))
    out["trimmed"] = float(errors["loss"].sort().values[: -HELD_OUT // 1000].mean())
    return out


def write(
    given: argparse.Namespace, path: Path, layers: Sequence[Sequence[Tensor]], step: int, seconds: float
) -> dict[str, float]:
    Q, P = products([*layers] * given.loops)
    losses = measure(given, Q, P)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    task = {"name": "noisy_regression", "dim": given.dim, "context": given.context, "noise": given.noise}
    if given.covariance:
        task["covariance"] = given.covariance
    fields = {
        "format": "interp-linear-transformer",
        "version": 1,
        "tokens": [["x", given.dim], ["y", 1]],
        "attention": {"keys": given.keys, "scale": given.scale},
        "residual": True,
        "clip": None,
        "readout": {"channel": "y", "sign": given.sign},
        "task": task,
        "provenance": {
            "trained_by": "tests/ordinary/train.py, Adam on factored heads in float32",
            "settings": settings,
            "seed": given.seed,
            "step": step,
            "torch": torch.__version__.split("+")[0],
            "processor_seconds": round(seconds, 1),
            "held_out": {"prompts": HELD_OUT, "seed": HELD_OUT_SEED + given.seed, **losses},
        },
    }
    data = save({"Q": Q, "P": P}, metadata={"interp": json.dumps(fields, sort_keys=True)})
    part = path.with_suffix(".part")
    part.write_bytes(data)
    os.replace(part, path)
    return losses


def main(arguments: Sequence[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.covariance and len(given.covariance) != given.dim:
        raise SystemExit(f"--covariance has {len(given.covariance)} numbers, expected {given.dim}")
    torch.set_num_threads(1)
    began = time.process_time()
    generator = torch.Generator().manual_seed(given.seed)
    layers = start(given, generator)
    weights = [weight for layer in layers for weight in layer]
    adam = torch.optim.Adam(weights, lr=given.rate)
    for step in range(given.steps):
        for group in adam.param_groups:
            group["lr"] = rate(given, step)
        prompts = draw(given, given.batch, generator, torch.float32)
        loss = (predict(given, layers * given.loops, tokens_of(prompts)) - prompts["target"]).square().mean()
        adam.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, given.clip)
        if bool(norm.isfinite()):  # a minibatch that overflows is passed over
            adam.step()
        if given.every and (step + 1) % given.every == 0 and step + 1 < given.steps:
            path = given.out.with_name(f"{given.out.stem}-{step + 1:05d}{given.out.suffix}")
            write(given, path, layers, step + 1, time.process_time() - began)
    losses = write(given, given.out, layers, given.steps, time.process_time() - began)
    words = ", ".join(f"{name} {value:.4g}" for name, value in losses.items())
    sys.stdout.write(f"{given.out.stem}: {words}; {time.process_time() - began:.0f} s\n")


if __name__ == "__main__":
    main()

"""What a reading of a file leaves unused, what it looks like, and whether a linear analysis without it would be false.

A description that names four matrices of a network with LayerNorm and softmax reads well and means nothing. So every
array is used or listed, and what changes the network's function is refused until ``--ignore`` says that it may go.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from interp.checkpoints.arrays import FLOATS, ArrayFile, ArrayInfo
from interp.errors import LayoutError, visible
from interp.models.specification import ModelSpec

__all__ = ["Doubt", "Unused", "biases_of_size", "contradictions", "refuse", "unused_arrays"]

BIAS_SHARE = 1e-3  # of the size of the weights: a bias below changes no prediction that a verdict rests on

# What a name says, the first that fits; _MISREAD are those that a linear analysis must not leave out.
_LOOKS = (
    ("optimiser state", r"optim|opt_state|exp_avg|momentum_buffer|square_avg|scheduler|grad_?scaler"),
    ("record of training", r"loss|history|metric|accurac|rng|seed|epoch|elapsed|hyper_?param|criterion|config"),
    ("mask or table of positions", r"mask|causal|position_ids|inv_freq|rotary|running_(mean|var)|num_batches"),
    ("norm", r"norm|(^|[._/])ln(_?\d+)?(_?[a-z]{1,2})?([._/]|$)|ln_weight"),
    ("bias", r"(^|[._/])(bias|b)$|_bias$|(^|[._/])b_?[qkvo]$|in_proj_bias"),
    (
        "attention",
        r"attn|attention|(^|[./])_?w?_?(q|k|v|o|p|qk|ov|kq|qkv|query|key|value|out)(_?proj)?(_?\d+)?([._/]|$)"
        r"|[qkvo]_proj|in_proj",
    ),
    ("MLP", r"mlp|ffn|feed_?forward|(^|[._/])(c_)?(fc|lin|linear|dense|gate|up_proj|down_proj|c_proj)_?\d*([._/]|$)"),
    ("embedding", r"embed|read_?in|wte|wpe|pos_enc|positional"),
    ("read-out", r"head|read_?out|pred|lm_|decoder|classifier|output|logits"),
    ("weights", r"(^|[._/])(weight|kernel|w)$|param$|conv"),
)  # fmt: skip
_MISREAD = {"norm", "MLP", "attention", "embedding", "read-out", "weights", "another layer of what is used"}

# What the file says of its own network.
_NOT_LINEAR = r"softmax|relu|gelu|silu|sigmoid|tanh|\belu\b|\bexp\b|gpt|bert|llama|mamba"
_KIND_KEYS = r"attn|attention|arch|kernel|(model|layer|block)(_?(type|name|kind|class))?$"
_ACTIVATION_KEYS = r"activation|nonlin"
_SWITCHES = r"^(use_|with_|has_|is_)?(softmax|layer_?norm|ln|mlp|rms_?norm|norm(ali[sz]e)?_attn)$"
_HEADS = r"^(n|num|no|nb)_?(attn_?|attention_?)?heads?$|^heads?$"
_LAYERS = r"^(n|num)_?(hidden_?)?layers?$|^depth$"
_LOOPS = r"^(n|num)_?loops?$|^loops$"


@dataclass(frozen=True)
class Unused:
    """An array that the reading does not use."""

    name: str
    info: ArrayInfo
    looks_like: str
    misread: bool  # without it the analysis would be of another network

    @property
    def words(self) -> str:
        return f"{visible(self.name, 200)} {self.info.shape} ({self.looks_like})"


@dataclass(frozen=True)
class Doubt:
    """Something the file says of its network that the reading contradicts."""

    name: str
    reason: str


def unused_arrays(arrays: ArrayFile, used: Iterable[str]) -> tuple[Unused, ...]:
    """The arrays of the file that a reading with the names ``used`` leaves out, in the order of the file."""
    read = {arrays.naming.names[name]: name for name in used}
    patterns = {_numberless(name) for name in read}
    short = {own: name for name, own in arrays.naming.names.items()}
    found = []
    for own, info in arrays.everything.items():
        if own in read:
            continue
        copied = next((used for used in read.values() if own.endswith(f".{used}") and own not in short), None)
        looks = _looks_like(own, info) if copied is None else "another copy of the weights"
        if own in short and info.is_weight and math.prod(info.shape) > 1 and _numberless(own) in patterns:
            looks = "another layer of what is used"
        found.append(Unused(short.get(own, own), info, looks, looks in _MISREAD))
    return tuple(found)


def _looks_like(name: str, info: ArrayInfo) -> str:
    said = next((what for what, pattern in _LOOKS if re.search(pattern, name.lower())), "other")
    if said == "optimiser state":
        return said
    if math.prod(info.shape) == 1:
        return "scalar"
    if info.dtype not in FLOATS:
        return said if said.startswith("mask") else f"no weights: {info.dtype}"
    return said


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def biases_of_size(arrays: ArrayFile, unused: Sequence[Unused], used: Iterable[str]) -> tuple[Unused, ...]:
    """Those of the unused biases that are not negligible beside the weights; reads both."""
    biases = [entry for entry in unused if entry.looks_like == "bias" and entry.name in arrays.arrays]
    if not biases:
        return ()
    weights = arrays.load(used).values()
    size = max((float(value.double().square().mean().sqrt()) for value in weights if value.numel()), default=0.0)
    values = arrays.load(entry.name for entry in biases)
    sizes = {name: float(value.double().abs().max()) if value.numel() else 0.0 for name, value in values.items()}
    return tuple(entry for entry in biases if not sizes[entry.name] <= BIAS_SHARE * size)


def contradictions(
    said: Mapping[str, str | int | bool], spec: ModelSpec, layers: int, heads: int, names: Iterable[str]
) -> tuple[Doubt, ...]:
    """Where the file's own words about its network and the reading of it do not go together. ``layers``: as stored."""
    mlp = any(_looks_like(name, ArrayInfo(shape=(2,), dtype="float32")) == "MLP" for name in names)
    found = []
    for name, value in said.items():
        key = re.split("[./]", name.lower())[-1]
        if isinstance(value, str):
            of_attention = re.search(_KIND_KEYS, key) or (re.search(_ACTIVATION_KEYS, key) and not mlp)
            if of_attention and re.search(_NOT_LINEAR, value.lower()) and "linear" not in value.lower():
                found.append(
                    Doubt(name, f"{visible(name, 80)} is {visible(value, 60)!r}, which is not linear attention")
                )
        elif isinstance(value, bool):
            if value and re.search(_SWITCHES, key):
                found.append(Doubt(name, f"{visible(name, 80)} is true"))
            if value and re.search(r"^(is_)?causal$", key) and spec.attention.keys != "causal":
                found.append(
                    Doubt(name, f"{visible(name, 80)} is true, and the description says {spec.attention.keys!r}")
                )
        else:
            counts = (("head", _HEADS, {heads}), ("layer", _LAYERS, {layers, layers * spec.loops}))
            for what, pattern, read in (*counts, ("loop", _LOOPS, {spec.loops})):
                if re.search(pattern, key) and value not in read and value > 0:
                    were = " or ".join(map(str, sorted(read)))
                    found.append(Doubt(name, f"{visible(name, 80)} is {value}, and {were} {what}(s) were read"))
    return tuple(found)


def refuse(label: str, doubts: Sequence[Unused | Doubt], ignore: Sequence[str]) -> None:
    """Raises LayoutError that names what a linear analysis would misread, unless a pattern of ``ignore`` fits it."""
    open_ = [doubt for doubt in doubts if not any(fnmatch.fnmatchcase(doubt.name, pattern) for pattern in ignore)]
    if not open_:
        return
    arrays = [doubt.words for doubt in open_ if isinstance(doubt, Unused)]
    seen = [doubt.reason for doubt in open_ if isinstance(doubt, Doubt)]
    listed = ", ".join(arrays[:8]) + (f" and {len(arrays) - 8} more" if len(arrays) > 8 else "")
    parts = [f"the description does not use {listed}"] if arrays else []
    parts += [f"the file says that {reason}" for reason in seen[:4]]
    raise LayoutError(
        f"{label}: {'; '.join(parts)}: a linear analysis would be of another network; describe all of it, or, where it "
        f"does nothing, say --ignore {visible(open_[0].name, 80)!r} (* stands for anything)"
    )

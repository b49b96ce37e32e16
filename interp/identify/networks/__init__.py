"""A network on prompts of its task, by the kind of pass that describes it."""

from interp.identify.networks.causal_sequences import CausalSequences, SequenceHalf
from interp.identify.networks.halves import Half, Network
from interp.identify.networks.shared_keys import GramHalf, SharedHalf, SharedKeys
from interp.identify.networks.token_network import TokenNetwork

NETWORKS = (SharedKeys, CausalSequences)  # the more is known of a pass, the earlier

__all__ = [
    "NETWORKS",
    "CausalSequences",
    "GramHalf",
    "Half",
    "Network",
    "SequenceHalf",
    "SharedHalf",
    "SharedKeys",
    "TokenNetwork",
]

"""The exact algebra of linear layers: unrolling, gauge, equivariant basis, alignment, structure."""

"""Which family explains a network: run, fit, choose, verdict."""

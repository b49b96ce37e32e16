"""The command line, ``interp-probe``."""

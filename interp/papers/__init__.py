"""Reproductions of the papers; imported by nothing but the command line."""

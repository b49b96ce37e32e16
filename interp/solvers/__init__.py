"""Reference solvers, and the baselines made of them. They know nothing of networks."""

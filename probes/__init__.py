"""What can be read from activations."""

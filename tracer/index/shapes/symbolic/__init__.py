"""Tensors with symbolic shapes, and what PyTorch's operations make of them. Knows nothing of a program."""

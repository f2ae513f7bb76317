"""Single-file examples of distributed JAX: copy the one you need; none imports another."""

"""Examples of distributed JAX, one file each: copy the one you need."""

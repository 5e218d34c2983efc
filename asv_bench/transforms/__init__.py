"""Transforms of adarray beside those of JAX: jvp, grad, hvp, jacobian, vmap, sparse matrices."""

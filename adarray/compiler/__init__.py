"""The compiler: recorded NumPy calls in, kernels in C and CUDA out."""

"""What the serial and the OpenMP backend share: the compiler's calls, running plans."""

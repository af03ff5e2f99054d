"""Machine-level code: CUDA graphs and streams, random numbers on a device, cores, memory, compiled loops."""

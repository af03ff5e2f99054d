"""What belongs to the machine: graphs, streams, random numbers on a device, cores, memory, compiled loops."""

"""The learner: trains the network."""

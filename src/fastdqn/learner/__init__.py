"""The learner: trains."""

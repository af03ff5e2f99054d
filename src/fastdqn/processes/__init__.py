"""The runner `processes`: actors, learner and evaluator each in a process, with shared memory."""

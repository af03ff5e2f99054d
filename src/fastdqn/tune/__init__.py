"""`fastdqn tune`: measures this machine and remembers which of its settings are fastest for one work."""

"""fastdqn."""

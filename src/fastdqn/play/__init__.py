"""A trained model that plays, and films of its games."""

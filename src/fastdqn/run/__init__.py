"""A run as the user sees it: its folder, its model file, what it needs from the machine, and the live view."""

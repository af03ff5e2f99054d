"""A run as the user sees it: its folder, its model file, what it needs of the machine, and the live view."""

"""`python -m fastdqn`."""

from fastdqn.cli import run

if __name__ == "__main__":
    run()

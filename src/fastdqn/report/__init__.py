"""One page from measured records: charts, tables and the command that repeats each number, in a single HTML file."""

from fastdqn.report.page import write_report

__all__ = ["write_report"]

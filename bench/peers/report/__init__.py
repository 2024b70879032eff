"""The report: one page of tables and figures from a result file, and its tables as Markdown."""

from bench.peers.report.for_docs import markdown
from bench.peers.report.page import write_report

__all__ = ["markdown", "write_report"]

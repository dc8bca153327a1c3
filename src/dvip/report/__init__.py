"""A page for a model: how good it is on rows, what it learned, which rows to look at."""

from dvip.report.findings import Findings, findings_of
from dvip.report.markup import check_page, page_of, written_page

__all__ = ["Findings", "check_page", "findings_of", "page_of", "written_page"]

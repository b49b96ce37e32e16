"""The page of closed-form: claims beside figures, and every seed."""

from __future__ import annotations

from test_html_report import Page

from interp.papers.closed_form import shipped_results, summary_rows
from interp.reports.law_page import law_figures, law_page


def test_the_page_has_claims_seeds_source_and_words_for_its_figures() -> None:
    results = shipped_results()
    rows = summary_rows(results)
    page = Page(law_page(results, rows, "interp-probe reproduce closed-form").text)
    random = [r["verdict"] for r in results["seeds"]["context"]["rows"] if r["start"] == "random"]
    assert f"{random.count('closed-form')} of {len(random)} seeds with keys: the examples" in page.words
    assert all(row["ours"] in page.words for row in rows)
    assert "arXiv 2607.15819" in page.words and "interp-probe reproduce closed-form" in page.words
    links = [text for tag, attributes in page.tags if tag == "a" and (text := attributes["href"])]
    assert "#claims" in links and "#seeds" in links
    assert all(figure.short for figure in law_figures(results))

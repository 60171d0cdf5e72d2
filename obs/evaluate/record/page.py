"""Is a body a metrics page as a whole? Only such a one is kept; the others count as failed scrapes."""

from __future__ import annotations

from obs.errors import InputError
from obs.evaluate import exposition
from obs.sidecar.scrape import Page, ScrapeFailed


def checked(page: Page, heads: exposition.Heads) -> tuple[str, exposition.Exposition]:
    """The page's text and what it says.

    ScrapeFailed, with a reason of ``obs.sidecar.scrape.REASONS``, when the evaluator could not read it.
    """
    text = page.text()
    tail = text.rstrip(" \t\r").rpartition("\n")[2].strip()
    try:
        found = exposition.parse(text, "line", heads)
    except InputError as error:
        first = text.lstrip()[0]
        if first == "<":
            raise ScrapeFailed("html", "an HTML or XML page instead of metrics") from None
        if first in "[{":
            raise ScrapeFailed("json", "JSON instead of metrics") from None
        if tail and tail != "# EOF":
            raise ScrapeFailed("truncated", "the last line has no line feed") from None
        raise ScrapeFailed("garbled", str(error).partition("; record it again")[0]) from None
    page.refuse_cut(text)
    return text, found

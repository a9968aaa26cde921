"""The documentation as a reader meets it, in a browser; `make docs` has to be run before.

Slow, and skipped where there is no built site or no Chromium.
"""

import functools
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import chromium

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html") if p.name != "404.html")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PAGES, reason="needs `make docs`"),
    pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium"),
]
PHONE, SCREEN = 390, 1280


class Page(HTMLParser):
    """The names and the references of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.references: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names |= {value for key in ("id", "name") if (value := found.get(key))}
        for key in ("href", "src"):
            if value := found.get(key):
                self.references.append(value)


@functools.cache
def parsed(path: Path) -> Page:
    return Page(path)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("page", PAGES)
def test_links_and_images_lead_somewhere(page: str) -> None:
    own = SITE / page
    assert not [reference for reference in parsed(own).references if _is_broken(own, reference)]


def _is_broken(page: Path, reference: str) -> bool:
    """Whether a reference within the site leads nowhere."""
    parts = urlsplit(reference)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.exists():
        return True
    is_named = parts.fragment and target.suffix == ".html"
    return bool(is_named) and unquote(parts.fragment) not in parsed(target).names | {"__top"}


class Quiet(SimpleHTTPRequestHandler):
    """Serves the site and says nothing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=str(SITE))

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_drawn_without_errors(browser: chromium.Browser, address: str, page: str) -> None:
    browser.errors.clear()
    browser.open(f"{address}/{page}")
    assert not browser.errors
    formulas = browser.run("document.querySelectorAll('.arithmatex').length")
    drawn = browser.run("document.querySelectorAll('.arithmatex .katex').length")
    assert drawn >= formulas, "a formula was not drawn"
    assert browser.run("document.querySelectorAll('.katex-error').length") == 0
    empty = browser.run(
        "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
    )
    assert not empty


@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("page", PAGES)
def test_nothing_spills_over(browser: chromium.Browser, page: str, width: int) -> None:
    browser.open(SITE / page, width=width, height=800)
    assert browser.run("document.scrollingElement.scrollWidth") <= width
    assert browser.run("parseFloat(getComputedStyle(document.body).fontSize)") >= 10
    # Pictures are seen whole: what scrolls is code, tables and formulas.
    wide = "[...document.images].filter(i => i.getBoundingClientRect().width > innerWidth)"
    assert not browser.run(f"{wide}.map(i => i.src)")


@pytest.mark.parametrize(
    ("words", "place"), [("checkpoint", "ensembles"), ("run.plot", "Run.plot")]
)
def test_the_search_finds_pages(
    browser: chromium.Browser, address: str, words: str, place: str
) -> None:
    browser.open(f"{address}/index.html")
    results = browser.run(
        """new Promise((found, lost) => {
                const input = document.querySelector('[data-md-component=search-query]');
                input.focus();
                input.value = WORDS;
                input.dispatchEvent(new Event('keyup', {bubbles: true}));
                input.dispatchEvent(new Event('input', {bubbles: true}));
                const until = Date.now() + 20000;
                const look = () => {
                    const links = [...document.querySelectorAll('.md-search-result__link')];
                    if (links.length) found(links.map(a => a.href));
                    else if (Date.now() > until) lost('no results');
                    else setTimeout(look, 100);
                };
                look();
            })""".replace("WORDS", repr(words))
    )
    assert any(place in link for link in results)

"""The site: it builds without a warning, its links lead somewhere, it needs no network, and it cannot drift."""

import fcntl
import inspect
import json
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

pytest.importorskip("zensical", reason="the extra `docs` is not installed")
markdown = pytest.importorskip("markdown", reason="the extra `docs` is not installed")

from theory.claims import CLAIMS  # noqa: E402
from theory.trials.typeset import Unreadable  # noqa: E402
from website import build, mathematics, pages  # noqa: E402


class Page(HTMLParser):
    """The anchors of a page, the places it points to, what it loads, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.loads, self.text = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.loads.append(found["src"])
        elif tag == "link" and found.get("href"):
            self.loads.append(found["href"])

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="session")
def built(tmp_path_factory, worker_id):
    """What the build said; one build for all workers."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    said = shared / "site.txt"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            done = subprocess.run(
                [sys.executable, "-m", "website.build"], cwd=build.ROOT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            said.write_text(done.stdout + done.stderr)
    return said.read_text()


@pytest.fixture(scope="module")
def site(built):
    """The pages by their paths."""
    return {path: Page(path.read_text()) for path in build.SITE.rglob("*.html") if path.name != "404.html"}


def words(page):
    return " ".join("".join(page.text).split())


def test_built_without_a_warning(built):
    assert "No issues found" in built
    assert "arning" not in built
    assert not re.search(r"(griffe|mkdocstrings|error)", built, re.IGNORECASE)


def test_every_link_leads_somewhere(site):
    count = 0
    for path, page in site.items():
        for link in [*page.links, *page.loads]:
            target, _, anchor = unquote(link).partition("#")
            if "://" in target or target.startswith(("mailto:", "data:", "javascript:")):
                continue
            goal = (path.parent / target).resolve() if target else path
            assert goal.exists(), f"{path}: {link}"
            if anchor and goal in site:
                assert anchor in site[goal].anchors, f"{path}: {link}"
            count += 1
    assert count > 1000


def test_nothing_comes_from_elsewhere(site):
    for path, page in site.items():
        assert not [load for load in page.loads if "://" in load or load.startswith("//")], path
    for sheet in build.SITE.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_all_pages_are_there(site):
    names = {str(path.relative_to(build.SITE)) for path in site}
    wanted = {path.stem + ".html" for path in (build.ROOT / "docs").glob("*.md")}
    wanted |= {"claims.html", "benchmarks.html", "speed.html", "explorer-page.html", "api/lur.html", "api/theory.html"}
    assert wanted <= names


def test_the_claims_are_those_on_record(site):
    text = words(site[build.SITE / "claims.html"])
    assert f"puts all {len(CLAIMS)} claims on trial" in text
    for claim in CLAIMS:
        assert re.search(rf"{claim.line} {claim.id} {claim.expected}\b", text), claim.id


def test_the_errata_are_those_on_record():
    """The copy in docs/ has every verdict that `lur verify` must find; `lur verify --errata docs` makes it anew."""
    text = (build.ROOT / "docs" / "errata.md").read_text()
    anchors = pages.errata_anchors(text)
    for claim in CLAIMS:
        if claim.expected != "HOLDS":
            assert claim.id in anchors, claim.id
            assert re.search(rf"^### Line {claim.line}: {claim.id} {claim.expected} ", text, re.MULTILINE), claim.id
    for verdict in {claim.expected for claim in CLAIMS}:
        count = sum(claim.expected == verdict for claim in CLAIMS)
        assert re.search(rf"^\| {verdict} \| {count} \|", text, re.MULTILINE), verdict


@pytest.mark.full
def test_the_errata_are_what_verify_writes(tmp_path):
    command = [sys.executable, "-c", "from lur.cli import main; raise SystemExit(main())"]
    done = subprocess.run([*command, "verify", "--seed", "0", "--quiet", "--errata", tmp_path], check=False)
    assert done.returncode == 0
    assert steady((tmp_path / "errata.md").read_text()) == steady((build.ROOT / "docs" / "errata.md").read_text())


def steady(text):
    """Without the digits of ratios beyond bounds: how far pursuit drives those, the processor's last bits decide."""
    return re.sub(r"found: \$[\d.]+ \\times (10\^\{\d+\})\$", r"found: $\1$", text)


def test_the_code_of_the_algorithms_is_the_code(site):
    import lur.methods.client

    text = "".join(site[build.SITE / "algorithms.html"].text)
    source = inspect.getsource(lur.inner_loop)
    assert "y, state = descend(step, gamma_k, g, state, y)" in source
    assert "y, state = descend(step, gamma_k, g, state, y)" in text
    assert "<!-- code" not in text
    with pytest.raises(ValueError, match="must have the function no_such"):
        build.source_of(build.ROOT / "lur" / "theta.py", ["no_such"])


def test_the_benchmarks_are_the_records(site):
    text = words(site[build.SITE / "benchmarks.html"])
    for path in (build.ROOT / "benchmarks" / "results").glob("speed-*.json"):
        for row in json.loads(path.read_text())["results"]:
            assert f"{row['seconds']:.4g}" in text, (path, row["name"])


def test_the_api_has_docstrings_and_their_mathematics(site):
    page = site[build.SITE / "api" / "theory.html"]
    assert {"theory.surrogate.surrogate_minimizer", "theory.moments.mean_square_error"} <= page.anchors
    assert "lur.methods.server.local_update" in site[build.SITE / "api" / "lur.html"].anchors
    for name in ("lur", "theory"):
        text = (build.SITE / "api" / f"{name}.html").read_text()
        assert "<math" in text
        assert ":math:" not in text
        assert ".. math::" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the rate $\\gamma_t$ here", "<mi>γ</mi>"),
        ("`$\\gamma$` is code", "<code>$\\gamma$</code>"),
        ("costs $5 and $6", "costs $5 and $6"),
        ("with :math:`\\eta_1` in it", "<mi>η</mi>"),
        ("so\n\n.. math::\n    a = b, \\\\\n    c = d\n\nand", 'display="block"'),
        ("$$\\sum_{k=1}^K \\theta_k$$", "<munderover>"),
        ("```\n$\\gamma$\n```", "$\\gamma$"),
    ],
)
def test_mathematics(text, shown):
    made = markdown.markdown(text, extensions=["fenced_code", mathematics.MathematicsExtension()])
    assert shown in made
    assert ("<math" in made) == (shown.startswith("<m") or "block" in shown)


def test_what_cannot_be_read_fails():
    with pytest.raises(Unreadable):
        markdown.markdown("$\\nonsense{x}$", extensions=[mathematics.MathematicsExtension()])


@pytest.mark.parametrize(("link", "is_there"), [("index.md#here", True), ("nowhere.md", False), ("index.md#no", False)])
def test_a_broken_link_fails_the_build(tmp_path, link, is_there):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[there]({link})\n")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\n')
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == is_there, done.stdout + done.stderr
    assert ("No issues found" in done.stdout + done.stderr) == is_there


def test_links_out_of_the_docs():
    links, origin = build.Links(), build.ROOT / "docs" / "experiments.md"
    staged = build.STAGE / "experiments.md"
    assert links.rewritten("[a](../lur/theta.py)", origin, staged) == "[a](source/lur/theta.py.md)"
    assert links.rewritten("[a](predict.md#how)", origin, staged) == "[a](predict.md#how)"
    assert links.rewritten("```\n[a](../lur/none.py)\n```", origin, staged).count("none.py") == 1
    assert links.wanted == {build.ROOT / "lur" / "theta.py"}
    with pytest.raises(ValueError, match="must link to what is there"):
        links.rewritten("[a](../lur/none.py)", origin, staged)
    with pytest.raises(ValueError, match="must link to what is in the repository"):
        links.rewritten("[a](../../elsewhere)", origin, staged)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def test_in_a_browser(site, browser):
    """Served: pages load nothing from elsewhere, say nothing on the console, fit a phone, and the explorer moves."""
    said, asked = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(build.SITE))) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            home = f"http://127.0.0.1:{serving.server_address[1]}"
            context = browser.new_context(viewport={"width": 375, "height": 812})
            context.set_default_timeout(0)
            page = context.new_page()
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            for name in ("index", "algorithms", "claims", "errata", "benchmarks", "api/theory", "explorer"):
                page.goto(f"{home}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            frame = page.frame_locator("iframe.explorer")
            frame.locator("#K").press("ArrowRight")
            assert frame.locator("output[for=K]").text_content() == "6"
            context.close()
        finally:
            serving.shutdown()
            thread.join()
    assert not said
    assert asked
    assert not [url for url in asked if not url.startswith((home, "data:"))]

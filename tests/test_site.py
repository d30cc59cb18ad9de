"""The site builds without a warning, has no broken link, needs no network, and agrees with the repository."""

import fcntl
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

import lur  # noqa: E402
from theory.claims import CLAIMS  # noqa: E402
from theory.reports.typeset import Unreadable  # noqa: E402
from website import build, mathematics, pages  # noqa: E402
from website.included_code import included_functions, source_of, with_code  # noqa: E402


class Page(HTMLParser):
    """The anchors, links, loaded resources and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.loads, self.text = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag in ("script", "img", "iframe", "source") and attributes.get("src"):
            self.loads.append(attributes["src"])
        elif tag == "link" and attributes.get("href"):
            self.loads.append(attributes["href"])

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="session")
def built(tmp_path_factory, worker_id):
    """The output of the build; all workers share one build."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    output = shared / "site.txt"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            done = subprocess.run(
                [sys.executable, "-m", "website.build"], cwd=build.ROOT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            output.write_text(done.stdout + done.stderr)
    return output.read_text()


@pytest.fixture(scope="module")
def site(built):
    """The pages by path."""
    return {path: Page(path.read_text()) for path in build.SITE.rglob("*.html") if path.name != "404.html"}


def words(page):
    return " ".join("".join(page.text).split())


def test_the_site_builds_without_a_warning(built):
    assert "No issues found" in built
    assert "arning" not in built
    assert not re.search(r"(griffe|mkdocstrings|error)", built, re.IGNORECASE)


def test_no_link_is_broken(site):
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


def test_no_page_loads_anything_from_another_host(site):
    for path, page in site.items():
        assert not [load for load in page.loads if "://" in load or load.startswith("//")], path
    for sheet in build.SITE.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_every_page_is_built(site):
    names = {str(path.relative_to(build.SITE)) for path in site}
    wanted = {path.stem + ".html" for path in (build.ROOT / "docs").glob("*.md")}
    wanted |= {"claims.html", "benchmarks.html", "speed.html", "explorer-page.html"}
    wanted |= {f"api/{room.package}.html" for room in pages.ROOMS}
    assert wanted <= names


def test_the_claims_page_has_the_recorded_verdicts(site):
    text = words(site[build.SITE / "claims.html"])
    assert f"puts all {len(CLAIMS)} claims on trial" in text
    for claim in CLAIMS:
        assert re.search(rf"{claim.line} {claim.id} {claim.expected}\b", text), claim.id


def test_the_errata_page_has_the_recorded_verdicts():
    """docs/errata.md has every verdict that `lur verify` must reproduce; `lur verify --errata docs` writes it."""
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
def test_the_errata_page_is_what_verify_writes(tmp_path):
    command = [sys.executable, "-c", "from lur.cli import main; raise SystemExit(main())"]
    done = subprocess.run([*command, "verify", "--seed", "0", "--quiet", "--errata", tmp_path], check=False)
    assert done.returncode == 0
    assert steady((tmp_path / "errata.md").read_text()) == steady((build.ROOT / "docs" / "errata.md").read_text())


def steady(text):
    """The text without the digits of ratios above bounds, which depend on the processor's rounding."""
    return re.sub(r"found: \$[\d.]+ \\times (10\^\{\d+\})\$", r"found: $\1$", text)


def test_the_algorithms_page_shows_the_included_code(site):
    text = "".join(site[build.SITE / "algorithms.html"].text)
    included = included_functions((build.ROOT / "docs" / "algorithms.md").read_text())
    assert len(included) > 2
    for path, node in included:
        for line in source_of(path, node).splitlines():
            assert line.strip() in text, (path, line)
    assert "<!-- code" not in text
    with pytest.raises(ValueError, match="must define the function no_such"):
        with_code("<!-- code: lur/theta.py no_such -->")


def test_code_is_included_by_qualified_names():
    page = "Before.\n\n<!-- code: website/included_code.py with_code.block function_nodes.visit -->\n\nAfter."
    assert [node.name for _, node in included_functions(page)] == ["block", "visit"]
    text = with_code(page)
    assert "```python\ndef block(match" in text
    assert "\n\ndef visit(parent" in text
    assert text.endswith("\n```\n\nAfter.")


def test_the_benchmarks_page_has_the_recorded_times(site):
    text = words(site[build.SITE / "benchmarks.html"])
    for path in (build.ROOT / "benchmarks" / "results").glob("speed-*.json"):
        for row in json.loads(path.read_text())["results"]:
            assert f"{row['seconds']:.4g}" in text, (path, row["name"])


def test_the_api_has_docstrings_and_their_mathematics(site):
    page = site[build.SITE / "api" / "theory.html"]
    assert {"theory.surrogate.surrogate_minimizer", "theory.moments.mean_square_error"} <= page.anchors
    assert "<math" in (build.SITE / "api" / "theory.html").read_text()
    for room in pages.ROOMS:
        text = (build.SITE / "api" / f"{room.package}.html").read_text()
        assert ":math:" not in text
        assert ".. math::" not in text


@pytest.mark.parametrize("name", ["local_update", "inner_loop", "from_client", "run", "run_grid", "evaluate"])
def test_the_api_has_the_names_of_lur(site, name):
    home = getattr(lur, name).__module__
    room = max((room.package for room in pages.ROOMS if home.startswith(f"{room.package}.")), key=len)
    assert f"{home}.{name}" in site[build.SITE / "api" / f"{room}.html"].anchors
    assert f"lur.{name} {home}.{name}" in words(site[build.SITE / "api" / "lur.html"])


def test_the_api_has_public_modules_only(site):
    navigation = (build.ROOT / "zensical.toml").read_text()
    for room in pages.ROOMS:
        modules = pages.documented_modules(room, build.ROOT)
        assert modules
        assert f'"api/{room.package}.md"' in navigation
        anchors = site[build.SITE / "api" / f"{room.package}.html"].anchors
        assert {*modules} <= anchors
        private = [
            anchor for anchor in anchors if re.search(r"(^|\.)_(?!_)", anchor) and anchor.startswith(room.package)
        ]
        assert not private


def test_modules_are_found_in_their_order(tmp_path):
    for name in ("b", "a", "c", "first", "_hidden"):
        (tmp_path / f"{name}.py").write_text("def f():\n    pass\n")
    (tmp_path / "constants.py").write_text("X = 1\n")
    assert pages.public_modules(tmp_path, ("gone", "first", "c"), internal=("b",)) == ["first", "c", "a"]


@pytest.mark.parametrize(
    ("source", "expected"),
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
def test_mathematics_becomes_mathml(source, expected):
    html = markdown.markdown(source, extensions=["fenced_code", mathematics.MathematicsExtension()])
    assert expected in html
    assert ("<math" in html) == (expected.startswith("<m") or "block" in expected)


def test_a_formula_that_cannot_be_read_fails():
    with pytest.raises(Unreadable):
        markdown.markdown("$\\nonsense{x}$", extensions=[mathematics.MathematicsExtension()])


@pytest.mark.parametrize(("link", "exists"), [("index.md#here", True), ("nowhere.md", False), ("index.md#no", False)])
def test_a_broken_link_fails_the_build(tmp_path, link, exists):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[there]({link})\n")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\n')
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == exists, done.stdout + done.stderr
    assert ("No issues found" in done.stdout + done.stderr) == exists


def test_links_to_files_become_links_of_the_site():
    links, origin = build.Links(), build.ROOT / "docs" / "experiments.md"
    staged = build.STAGE / "experiments.md"
    assert links.rewritten("[a](../lur/theta.py)", origin, staged) == "[a](source/lur/theta.py.md)"
    assert links.rewritten("[a](predict.md#how)", origin, staged) == "[a](predict.md#how)"
    assert links.rewritten("```\n[a](../lur/none.py)\n```", origin, staged).count("none.py") == 1
    assert links.wanted == {build.ROOT / "lur" / "theta.py"}
    with pytest.raises(ValueError, match="must link to an existing file"):
        links.rewritten("[a](../lur/none.py)", origin, staged)
    with pytest.raises(ValueError, match="must link to a file in the repository"):
        links.rewritten("[a](../../elsewhere)", origin, staged)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def test_the_site_in_a_browser(site, browser):
    """Served pages load nothing from other hosts, log nothing, fit a phone, and the explorer reacts."""
    messages, requests = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(build.SITE))) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            home = f"http://127.0.0.1:{serving.server_address[1]}"
            context = browser.new_context(viewport={"width": 375, "height": 812})
            context.set_default_timeout(0)
            page = context.new_page()
            page.on("console", lambda message: messages.append(message.text))
            page.on("pageerror", lambda error: messages.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            for name in ("index", "algorithms", "claims", "errata", "benchmarks", "api/theory", "api/lur", "explorer"):
                page.goto(f"{home}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            frame = page.frame_locator("iframe.explorer")
            frame.locator("#K").press("ArrowRight")
            assert frame.locator("output[for=K]").text_content() == "6"
            context.close()
        finally:
            serving.shutdown()
            thread.join()
    assert not messages
    assert requests
    assert not [url for url in requests if not url.startswith((home, "data:"))]

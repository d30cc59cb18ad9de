"""The explorer in a real browser: its numbers are those of `theory`, and it is accessible."""

import contextlib
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import jax
import numpy as np
import pytest

from lur.explorer import page as explorer
from lur.explorer.serve import server
from tests.lur.explorer.expected_numbers import closed_forms_at, expected_numbers

READ = """async (hash) => {
    if (location.hash !== hash) {
        const seen = new Promise((done) => addEventListener("hashchange", done, { once: true }));
        location.hash = hash;
        await seen;
    }
    const cells = [...document.querySelectorAll("[data-name]")];
    const number = (text) => text === "" ? null : Number(text);
    return {
        numbers: Object.fromEntries(cells.map((c) => [c.dataset.name, number(c.querySelector("data").value)])),
        python: document.getElementById("python").textContent,
        sentence: document.getElementById("sentence").textContent,
    };
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "explore.html"
    path.write_text(explorer())
    return path


@pytest.fixture
def visit(browser, file):
    """Open the page without a network; at the end the console is empty and there was no other request."""
    contexts, console, requests = [], [], []

    def open_page(hash="", **options):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        context.set_default_timeout(0)
        page = context.new_page()
        page.on("console", lambda message: console.append(message.text))
        page.on("pageerror", lambda error: console.append(str(error)))
        page.on("request", lambda request: requests.append(request.url.split("#")[0]))
        page.goto(f"{file.as_uri()}{hash}")
        page.wait_for_selector("#errors svg.plot path.path", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not console
    assert set(requests) <= {file.as_uri()}


def settings_of(count):
    """Yield settings and their addresses: every method, small and large rates, several K."""
    random = np.random.default_rng(0)
    families, draws = ("fedavg", "fomaml", "maml", "geometric", "own"), [("iid", 2), ("without replacement", 5)]
    for k in range(count):
        family, (sampling, M) = families[k % 5], draws[k // 5 % 2]
        chosen = {
            "family": family, "K": (1, 2, 5, 16)[k // 5 % 4], "M": M, "sampling": sampling,
            "gamma": round(0.005 * random.integers(0, 299), 3) if k % 3 else round(0.005 * random.integers(1, 40), 3),
            "eta": round(random.uniform(-2.5, -1.3 if family == "fedavg" else 0), 2),
            "curvatures": round(random.choice([0, 1, random.uniform()]), 2),
            "minimisers": round(random.uniform(0, 1.5), 2), "kappa": round(random.uniform(0, 2), 2),
            "noise": round(random.choice([0, random.uniform()]), 2), "T": 10 * int(random.integers(1, 101)),
            "rho": round(0.05 * random.integers(0, 41), 2),
        }  # fmt: skip
        chosen |= {f"theta{j}": round(0.1 * random.integers(0, 21), 1) for j in range(1, 17)}
        yield chosen, "#" + "&".join(f"{name}={value}" for name, value in chosen.items()).replace(" ", "%20")


def test_numbers_are_those_of_theory(visit):
    """To 1e-9 at 50 settings, from A and c as the page has them in its Python code."""
    page = visit()
    chosen, seen, settings = [], [], []
    for wanted, hash in settings_of(50):
        found = page.evaluate(READ, hash)
        names = {}
        exec(found["python"].split("\nhessian")[0], names)
        assert names["gamma"] == wanted["gamma"]
        assert (names["run"]["M"], names["run"]["sampling"]) == (wanted["M"], wanted["sampling"])
        np.testing.assert_allclose(names["eta"], 10 ** wanted["eta"], rtol=1e-14)
        assert names["run"]["noise"][0, 0] == wanted["noise"]
        chosen.append(wanted)
        seen.append(found["numbers"])
        settings.append(names)
    missing = {name: 0 for name in seen[0]}
    for wanted, numbers, setting, found in zip(chosen, seen, settings, closed_forms_at(settings), strict=True):
        truth = expected_numbers(setting, wanted["family"], wanted["K"], wanted["T"], found)
        assert numbers.keys() == truth.keys()
        for name, value in truth.items():
            if value is None or not np.isfinite(value):
                assert numbers[name] is None, (name, wanted)
                missing[name] += 1
            else:
                assert numbers[name] is not None, (name, value, wanted)
                np.testing.assert_allclose(numbers[name], value, rtol=1e-9, atol=1e-13, err_msg=f"{name}, {wanted}")
        assert abs(numbers["L"] - 1) < 1e-12
        assert abs(numbers["mu"] * 10 ** wanted["kappa"] - 1) < 1e-12
        assert abs(numbers["sigma_c"] - wanted["minimisers"]) < 1e-12
    assert all(count < 40 for name, count in missing.items() if name != "errorBound"), missing
    assert 50 - missing["errorBound"] >= 3


def test_the_python_on_the_page_says_the_same(visit, capsys):
    found = visit().evaluate(READ, "#K=3&gamma=0.4&M=3&T=10")
    with jax.disable_jit():  # ten rounds are faster than their compilation
        exec(found["python"], {})
    printed = [float(text) for text in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", capsys.readouterr().out)]
    names = ("surrogateCondition", "surrogateX", "surrogateY", "distance", "error", "longRun")
    np.testing.assert_allclose(printed, [found["numbers"][name] for name in names], rtol=1e-7)


def test_sliders_move_by_keyboard_and_update_the_page(visit):
    page = visit()
    before = page.evaluate(READ, "")
    curve = page.get_attribute("#conditions svg.plot .curve.surrogate", "d")
    page.focus("#K")
    page.keyboard.press("ArrowRight")
    assert page.text_content("output[for=K]") == "6"
    assert page.get_attribute("#conditions svg.plot .curve.surrogate", "d") != curve
    assert page.evaluate("location.hash") == "#K=6"
    page.focus("#gamma")
    page.keyboard.press("End")
    assert page.text_content("output[for=gamma]") == "1.5"
    assert page.get_attribute("#gamma", "aria-valuetext") == "1.5 over L"
    page.select_option("#family", "fomaml")
    after = page.evaluate(READ, page.evaluate("location.hash"))
    assert after["numbers"] != before["numbers"]
    assert after["sentence"] != before["sentence"]
    page.reload()  # the settings are in the address
    assert page.evaluate(READ, page.evaluate("location.hash")) == after
    page.click("text=Reset")
    assert page.evaluate(READ, page.evaluate("location.hash")) == before


def test_every_slider_changes_a_number(visit):
    page = visit("#family=own&K=3")
    for name in page.evaluate(
        "[...document.querySelectorAll('input')].filter(i => i.checkVisibility()).map(i => i.id)"
    ):
        start = page.evaluate(READ, "#family=own&K=3")["numbers"]
        page.focus(f"#{name}")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(READ, page.evaluate("location.hash"))["numbers"] != start, name


def test_tab_reaches_every_control_in_order_with_a_visible_focus(visit):
    page = visit("#family=own&K=3")
    wanted = page.evaluate("""[...document.querySelectorAll('button, select, input, summary')]
        .filter((e) => e.checkVisibility()).map((e) => e.id || e.textContent)""")
    assert len(wanted) > 20
    reached = []
    for _ in wanted:
        page.keyboard.press("Tab")
        name, ring, label = page.evaluate("""() => {
            const e = document.activeElement;
            const label = e.labels?.[0]?.textContent ?? e.textContent;
            return [e.id || e.textContent, getComputedStyle(e).outlineWidth, label];
        }""")
        reached.append(name)
        assert float(ring.removesuffix("px")) >= 2, name
        assert label.strip(), name
    assert reached == wanted


@pytest.mark.parametrize("hash", ["", "#family=own&K=16", "#family=maml&gamma=1.2&K=3"])
def test_readable_on_a_phone(visit, hash):
    page = visit(hash, viewport={"width": 375, "height": 812}, device_scale_factor=2, has_touch=True, is_mobile=True)
    page.evaluate("document.querySelector('details').open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    sizes = page.evaluate("""[...document.querySelectorAll('svg.plot')].map((svg) =>
        12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)""")
    assert min(sizes) > 11
    small = page.evaluate("""[...document.querySelectorAll('#controls input, #controls select, #controls button')]
        .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24).map((e) => e.id)""")
    assert not small
    outside = page.evaluate("""[...document.querySelectorAll('svg.plot text')].filter((text) => {
        const [a, b] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
        return a.left < b.left - 1 || a.right > b.right + 1;
    }).map((text) => text.textContent)""")
    assert not outside


def test_an_idle_page_does_not_redraw(visit):
    """Drawing does not trigger drawing."""
    page = visit(viewport={"width": 375, "height": 812})
    changes = page.evaluate("""async () => {
        const frames = async (count) => { for (; count; count--) await new Promise(requestAnimationFrame) };
        await frames(5);
        let changes = 0;
        const observer = new MutationObserver((found) => (changes += found.length));
        observer.observe(document.querySelector("#errors"), { subtree: true, childList: true, attributes: true });
        await frames(10);
        const still = changes;
        dispatchEvent(new HashChangeEvent("hashchange"));
        await frames(2);
        return [still, changes];
    }""")
    assert changes[0] == 0
    assert changes[1] > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(visit, scheme):
    """Text and curves against their background, by the formula of WCAG 2: 4.5 for text, 3 for lines."""
    page = visit(color_scheme=scheme)
    names = ("back", "panel", "text", "quiet", "true", "surrogate", "bound", "other", "client")
    colours = page.evaluate(
        "(names) => names.map((n) => getComputedStyle(document.documentElement).getPropertyValue('--' + n))", names
    )

    def luminance(colour):
        parts = [int(colour.strip()[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light = dict(zip(names, map(luminance, colours), strict=True))
    assert (light["back"] > 0.5) == (scheme == "light")
    for name in names[2:]:
        for back in ("back", "panel") if name in ("text", "quiet") else ("back",):
            high, low = sorted((light[name], light[back]), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= (4.5 if name in ("text", "quiet") else 3), (name, back)


@pytest.mark.parametrize(
    ("hash", "expected_text"),
    [
        ("#curvatures=0", "and it converges to the minimiser of f"),
        ("#family=fomaml&K=2&gamma=1.5&curvatures=0&kappa=0.1", "is not convex"),
        ("#eta=0.5&gamma=0", "grows without limit"),
        ("#family=own&K=1&theta1=0", "All weights are 0"),
        ("#minimisers=0&noise=0", "in the long run 0."),
        ("#family=nonsense&K=ten", "and K = 5 FedAvg"),
    ],
)
def test_the_sentence_describes_the_setting(visit, hash, expected_text):
    assert expected_text in visit(hash).evaluate(READ, hash)["sentence"]


def test_the_page_is_self_contained():
    text = explorer()
    assert "://" not in text
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert "@import" not in text


def test_the_server_is_local():
    with server(explorer()) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            host, port = serving.server_address[:2]
            assert host == "127.0.0.1"
            with urllib.request.urlopen(f"http://{host}:{port}/") as answer:
                assert answer.read().decode() == explorer()
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                urllib.request.urlopen(f"http://{host}:{port}/etc/passwd")
            refused.value.close()
        finally:
            serving.shutdown()
            thread.join()


def test_export(lur, tmp_path):
    status, out, _ = lur("explore", "--export", tmp_path / "page.html")
    assert (status, out.strip()) == (0, str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text() == explorer()
    assert lur("explore", "--export", tmp_path)[0] == 2
    status, _, complaint = lur("explore", "--port", "70000")
    assert status == 2
    assert "--port must be in [0, 65535], got 70000" in complaint


def test_the_command_prints_its_address_and_stops(tmp_path):
    import signal

    # a shell that starts the tests in the background makes them ignore SIGINT, and processes inherit that
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from lur.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "explore", "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    with process, contextlib.closing(process.stdout):
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(address) as answer:
            assert b"What does a local update method optimise?" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0

"""The pages of `mytorch bench --report` and `mytorch check --report`, as a browser shows them.

Without a browser only the commands and the files are tested, and the test counts as skipped.
"""

import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

MYTORCH = sys.argv.pop()
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
BROWSER = needs.find("chromium", *BROWSERS)
HOSTILE = "peer </script><b onclick='x'>&amp;"
BENCH = ["bench", "gelu", "--shapes=4096", "--backend=cpu-openmp,reference", "--seconds=0.02", "--threads=1"]


def run(*words) -> subprocess.CompletedProcess:
    return processes.run([MYTORCH, *map(str, words)], capture_output=True, text=True, timeout=200)


def browse(path: Path, script: str) -> dict:
    """Returns what the script's function returns in the page."""
    page = path.read_text()
    errors = "<script>window.errors = []; addEventListener('error', event => errors.push(event.message));</script>"
    page = page.replace("<head>", "<head>" + errors, 1)
    probe = f"const result = (() => {{ {script} }})(); result.errors = window.errors;"
    probe += "document.body.replaceChildren(make('pre', {id: 'result'}, JSON.stringify(result)));"
    changed = path.with_suffix(".probe.html")
    changed.write_text(page + f"<script>{probe}</script>")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command = [BROWSER, *flags, "--virtual-time-budget=5000", "--dump-dom", changed.as_uri()]
        done = processes.run(command, capture_output=True, text=True, timeout=200)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.S)
    if not found:
        raise AssertionError(f"the page ended early:\n{done.stderr[-2000:]}")
    return json.loads(html.unescape(found[1]))


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def offline(self, path: Path):
        page = path.read_text()
        links = set(re.findall(r"https?://[^\s\"'<>]+", page))
        self.assertLessEqual(links, {"http://www.w3.org/2000/svg"})
        for word in ("<link", " src=", "@import", "url("):
            self.assertNotIn(word, page)

    def before(self) -> Path:
        path = self.folder / "before.json"
        if not path.exists():
            done = run(*BENCH, "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def baseline(self, name: str, factors: dict[str, float]) -> Path:
        results = json.loads(self.before().read_text())
        for entry in results["benchmarks"]:
            entry["real_time"] *= factors[entry["backend"]]
            entry["deviation"] = 0.001 * entry["real_time"]
        path = self.folder / name
        path.write_text(json.dumps(results))
        return path

    def test_baseline_decides_the_exit_status(self):
        fast = self.baseline("fast.json", {"cpu-openmp": 0.01, "reference": 100})
        done = run(*BENCH, "--baseline", fast)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"slower: gelu/4096 +cpu-openmp")
        self.assertRegex(done.stdout, r"faster: gelu/4096 +reference")
        self.assertIn("baseline: 1 slower, 1 faster, 0 within their spread, 0 not in the file", done.stdout)
        self.assertIn("measured again", done.stderr)
        slow = self.baseline("slow.json", {"cpu-openmp": 100, "reference": 100})
        self.assertEqual(run(*BENCH, "--baseline", slow).returncode, 0)

    def test_mistakes_are_refused_before_measuring(self):
        for words, says in (
            (["--baseline", self.folder / "none.json"], "--baseline: cannot read"),
            (["--report", "/no/such/folder/report.html"], "cannot write /no/such/folder"),
        ):
            done = run(*BENCH, *words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")
        other = run(*BENCH[:1], "exp", *BENCH[2:], "--baseline", self.before())
        self.assertIn("has none of these rows", other.stderr)

    def test_bench(self):
        peer = self.folder / "peer.json"
        entry = {"name": "gelu/4096", "real_time": 7, "time_unit": "us"}
        peer.write_text(json.dumps({"context": {"label": HOSTILE}, "benchmarks": [entry]}))
        report = self.folder / "bench.html"
        old = self.baseline("old.json", {"cpu-openmp": 0.01, "reference": 1000})
        done = run(*BENCH, "--compare", peer, "--baseline", old, "--report", report)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.offline(report)
        if not BROWSER:
            return
        script = """
          const texts = selector => [...document.querySelectorAll(selector)].map(each => each.textContent);
          const time = [...document.querySelectorAll('#all th')].find(head => head.textContent === 'time');
          const backends = () => [...document.querySelectorAll('#all tbody tr')].map(row => row.dataset.backend);
          time.click(); const down = backends();
          time.click(); const up = backends();
          const rooflines = [...document.querySelectorAll('svg.roofline')].map(svg => svg.dataset.device);
          const dots = [...document.querySelectorAll('circle.point')].map(dot => dot.dataset.backend);
          const inside = [...document.querySelectorAll('circle.point')].every(dot => dot.cx.baseVal.value > 0 && dot.cy.baseVal.value > 0
            && dot.cx.baseVal.value < 1180 && dot.cy.baseVal.value < 430);
          document.querySelector('circle.point').dispatchEvent(new MouseEvent('click'));
          const marked = document.querySelectorAll('tr.marked').length;
          const bars = [...document.querySelectorAll('.bar')].map(bar => [bar.dataset.label, bar.querySelector('.fill').getBoundingClientRect().width]);
          const verdicts = [...document.querySelectorAll('#baseline tbody tr')].map(row => row.dataset.verdict);
          const commands = texts('#all code');
          const search = document.getElementById('filter');
          search.value = 'nothing'; search.dispatchEvent(new Event('input'));
          const hidden = [...document.querySelectorAll('#all tbody tr')].filter(row => row.hidden).length;
          return {down, up, rooflines, dots, inside, marked, bars, verdicts, commands, hidden, tiles: texts('.tile span'),
                  bold: document.querySelectorAll('b[onclick]').length};
        """
        seen = browse(report, script)
        self.assertEqual(seen["errors"], [])
        self.assertEqual(seen["rooflines"], ["cpu"])
        self.assertEqual(sorted(seen["dots"]), ["cpu-openmp", "reference"])
        self.assertTrue(seen["inside"])
        self.assertEqual(seen["marked"], 1)
        self.assertEqual(sorted(seen["down"]), ["cpu-openmp", "reference"])
        self.assertEqual(seen["up"], seen["down"][::-1])
        bars = dict(seen["bars"])
        self.assertEqual(set(bars), {"cpu-openmp", "reference", HOSTILE, "old cpu-openmp", "old reference"})
        self.assertGreater(bars["old reference"], 2 * bars["reference"])
        self.assertEqual(seen["verdicts"], ["slower", "faster"])
        self.assertEqual(seen["hidden"], 2)
        self.assertEqual(seen["bold"], 0)
        self.assertTrue(any("noise" in text for text in seen["tiles"]))
        for command in seen["commands"]:
            words = shlex.split(command)
            self.assertEqual(words[:2], ["mytorch", "bench"])
            again = run(*words[1:], "--seconds", "0.01")
            self.assertEqual(again.returncode, 0, again.stderr)

    def test_check(self):
        report = self.folder / "check.html"
        names = ["--backend=cpu-openmp,reference", "--only", "gelu", "nonzero", "expand", "hypot"]
        done = run("check", *names, "--quick", "--report", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.offline(report)
        if not BROWSER:
            return
        script = """
          const rows = [...document.querySelectorAll('#matrix tbody tr')];
          const cells = rows.flatMap(row => [...row.querySelectorAll('[data-type]')].map(cell =>
            [row.dataset.op, cell.dataset.type, cell.dataset.route]));
          const operators = rows.map(row => row.dataset.op);
          const route = document.getElementById('route');
          route.value = 'view'; route.dispatchEvent(new Event('change'));
          const views = rows.filter(row => !row.hidden).map(row => row.dataset.op);
          route.value = ''; route.dispatchEvent(new Event('change'));
          const search = document.getElementById('filter');
          search.value = 'nonz'; search.dispatchEvent(new Event('input'));
          return {cells, operators, views, found: rows.filter(row => !row.hidden).map(row => row.dataset.op),
                  score: document.querySelectorAll('.tile').length, failures: document.getElementById('failures').nextSibling.textContent};
        """
        seen = browse(report, script)
        self.assertEqual(seen["errors"], [])
        self.assertEqual(sorted(seen["operators"]), ["expand", "gelu", "hypot", "nonzero"])
        self.assertIn(["gelu", "float32", "native"], seen["cells"])
        self.assertIn("expand", seen["views"])
        self.assertNotIn("gelu", seen["views"])
        self.assertEqual(seen["found"], ["nonzero"])
        self.assertEqual(seen["score"], 12)
        self.assertEqual(seen["failures"], "None.")


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    needs.need("chromium", *BROWSERS)

"""Collects the pages of the website, and writes the configuration of mkdocs. docs/index.md is the first page.

    python3 docs/site.py GENERATED OUT

GENERATED/ops holds the generated pages. Writes OUT/pages and OUT/mkdocs.yml.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import yaml
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "idioms"))
import page as idioms_page  # noqa: E402

# The order of the navigation. A page that is not listed here comes last; a listed page that does not exist is left out.
SECTIONS = {
    "Start": ["guide", "coming-from-libtorch", "pytorch-names"],
    "Use": [
        "tensors",
        "autograd",
        "modules",
        "transformers",
        "attention",
        "models",
        "optimizers",
        "training",
        "mixed_precision",
        "distributed",
        "plan",
        "data",
        "saving",
        "programs",
        "devices",
        "linalg",
        "fourier",
    ],
    "Performance": ["performance", "compile", "profiling", "choice", "bench", "cuda"],
    "Extend": ["custom_operators", "records", "backends", "contributing"],
    "Reference": ["architecture", "settings", "versions", "dependencies"],
}


def title(page: str) -> str:
    return re.search(r"^# (.+)$", page, re.M)[1].replace("`", "")


def links_in_site(page: str, folder: Path) -> str:
    """Returns the page with its links changed for the site, which has docs/*.md in one folder. Links to the README lead
    to the first page; those to other files of the repository become plain text."""

    def change(match: re.Match) -> str:
        text, link = match[1], match[2]
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        name, mark, fragment = link.partition("#")
        target = Path(os.path.normpath(folder / name))
        if target == ROOT / "README.md":
            return f"[{text}](index.md{mark}{fragment})"
        if target.parent == ROOT / "docs" and target.suffix == ".md":
            return f"[{text}]({target.name}{mark}{fragment})"
        return text

    return re.sub(r"\[([^\]\n]*)\]\(([^)\s]+)\)", change, page)


def outside_code(page: str, change) -> str:
    """Applies `change` to the text outside of code blocks."""
    parts = re.split(r"(^```.*?^```$)", page, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def main() -> None:
    generated, out = Path(sys.argv[1]), Path(sys.argv[2])
    pages = out / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(generated / "ops", pages / "ops")
    (pages / "code.css").write_text(HtmlFormatter().get_style_defs(".codehilite"))
    found = {}
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text()
        name = path.stem
        if name == "coming-from-libtorch":
            text += "\n" + idioms_page.listed()
        text = outside_code(text, lambda part, folder=path.parent: links_in_site(part, folder))
        # A block may have a file name after its language, which the highlighter does not know.
        text = re.sub(r"^```(\w+) (\S+)$", r"`\2`:\n\n```\1", text, flags=re.M)
        (pages / f"{name}.md").write_text(text)
        found[name] = title(text)

    navigation: list = [{"mytorch": "index.md"}]
    listed = {"index"}
    for section, names in SECTIONS.items():
        listed |= set(names)
        navigation.append({section: [{found[name]: f"{name}.md"} for name in names if name in found]})
    if rest := sorted(set(found) - listed):
        navigation.append({"More": [{found[name]: f"{name}.md"} for name in rest]})
    families = sorted(path for path in (pages / "ops").glob("*.md") if path.name != "index.md")
    operators: list = [{"All operators": "ops/index.md"}]
    operators += [{title(path.read_text()): f"ops/{path.name}"} for path in families]
    navigation.append({"Operators": operators})

    configuration = {
        "site_name": "mytorch",
        "site_url": "",
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": navigation,
        "use_directory_urls": False,
        "theme": {"name": "readthedocs", "highlightjs": False, "navigation_depth": 2},
        "extra_css": ["code.css"],
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", {"codehilite": {"guess_lang": False}}, "sane_lists"],
    }
    (out / "mkdocs.yml").write_text(yaml.safe_dump(configuration, sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    main()

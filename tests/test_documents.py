"""The pages name what there is: every path, module and function in them exists, examples run."""

import ast
import doctest
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import tree_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kip33"
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *PACKAGE.rglob("*.md"), *(ROOT / "tests").rglob("*.md"))
    if "target" not in page.parts  # what Maven made
)
FOLDERS = tuple(sorted(path.name for path in ROOT.iterdir() if path.is_dir()))
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))

IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:[\w.-]+/)*[\w.-]+(?:\.(?:py|md|toml|ipynb|conf|properties|svg)|/)")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")  # not to another site
CODE_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
DOTTED = re.compile(rf"(?:kip33\.)?({'|'.join(PACKAGES)})((?:\.\w+)+)")
NOT_OURS = re.compile(  # names of files, settings of Spark and Kafka
    r"\w+\.(py|md|ms|bytes)|(local|remote)\.\w+(\.\w+)?|spark\.(archives|cores|driver|dynamicAllocation|eventLog|executor|"
    r"hadoop|io|jars|kerberos|kubernetes|pyspark|python|redaction|speculation|sql|submit|task|yarn)(\..+)?"
)


def is_there(path: str, page: Path) -> bool:
    """Return whether a path exists from the top, in the package, or beside its page."""
    return any((top / path).exists() for top in (ROOT, PACKAGE, page.parent))


def looks_like_a_path_of_the_repository(text: str) -> bool:
    if not PATH.fullmatch(text):
        return False
    first = text.split("/")[0]
    return text.endswith(".py") or first in FOLDERS or ("/" in text and first in PACKAGES)


def paths_in(page: Path) -> Iterator[str]:
    """Yield each path in backticks, and where links lead; a bare name has its neighbour's folder.

    A line may name a folder once: `rules/search.py`, `retention.py`.
    """
    for line in page.read_text(encoding="utf-8").splitlines():
        folder = ""
        for text in IN_BACKTICKS.findall(line):
            text = text.partition("::")[0]
            if not looks_like_a_path_of_the_repository(text):
                continue
            above, _, name = text.rpartition("/")
            is_bare = not above and not is_there(text, page)
            yield f"{folder}/{name}" if is_bare and folder else text
            folder = above or folder


def test_every_path_on_a_page_exists() -> None:
    missing = [
        f"{page}: {path}" for page in PAGES for path in paths_in(page) if not is_there(path, page)
    ]
    assert missing == []


def prose_of(page: Path) -> str:
    return CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST name them."""
    known: Counter[str] = Counter()
    anchors = set()
    for heading in HEADING.findall(prose_of(page)):
        name = re.sub(r"[^\w\- ]", "", LINK.sub("]", heading).lower()).replace(" ", "-")
        anchors.add(f"{name}-{known[name]}" if known[name] else name)
        known[name] += 1
    return anchors


def is_dead(link: tuple[str, str], page: Path) -> bool:
    """Return whether a link leads to no file or directory, or to no heading of a page."""
    path, anchor = link
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor and anchor not in anchors_of(target))


def test_every_link_of_a_page_leads_somewhere() -> None:
    dead = [
        f"{page}: {link}"
        for page in (*PAGES, *(ROOT / ".github").rglob("*.md"))
        for link in LINK.findall(prose_of(page))
        if is_dead(link, page)
    ]
    assert dead == []


TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_on_a_page_exists() -> None:
    missing = [
        f"{page}: {path}::{test}"
        for page in PAGES
        for path, test in TEST.findall(page.read_text(encoding="utf-8"))
        if test not in names_in(ROOT / path)
    ]
    assert missing == []


@cache
def names_in(module: Path) -> set[str]:
    """Return what a module defines at its top."""
    names = set()
    body = tree_of(module).body
    for_types = [node for one in body if isinstance(one, ast.If) for node in one.body]
    for node in (*body, *for_types):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {
                name.id
                for target in targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def is_defined(dotted: str) -> bool:
    """Return whether `builds.plan` is a module or package, `stores.files.opened` in a module."""
    place = PACKAGE
    parts = dotted.removeprefix("kip33.").split(".")
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            rest = parts[number + 1 :]
            return not rest or rest[0] in names_in(place / f"{part}.py")
        else:
            return part in names_in(place / "__init__.py")
    return True


def dotted_in(text: str) -> list[str]:
    names = filter(DOTTED.fullmatch, IN_BACKTICKS.findall(text))
    return [name for name in names if not NOT_OURS.fullmatch(name)]


def test_every_module_and_function_that_a_page_or_a_module_names_exists() -> None:
    unknown = [
        f"{path}: {name}"
        for path in (*PAGES, *PACKAGE.rglob("*.py"))
        for name in dotted_in(path.read_text(encoding="utf-8"))
        if not is_defined(name)
    ]
    assert unknown == []


def test_the_examples_on_a_page_give_what_it_says() -> None:
    failed = [
        str(page)
        for page in PACKAGE.rglob("*.md")
        if doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed
    ]
    assert failed == []

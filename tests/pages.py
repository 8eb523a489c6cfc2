"""The code blocks of a page, with what a comment above each says of it; what they print is renewed.

`<!-- step -->`: it runs in the page's folder, after the steps before it; a block of text below it
is what it prints, where `...` stands for anything. `<!-- step with Java -->`: a step that needs
Java; what it prints on standard error is its own. `<!-- install -->`: a step whose lines of `pip`
make the environment of the page; they do not run in a checkout. `<!-- test: name -->`: the block
runs alone, in a folder with the demo archive. `<!-- needs: words -->`: it does not run here; its
commands and options are compared with kip33's.

    python -m tests.pages                           # renews what all pages show
    python -m tests.pages kip33/docs/how-to/search.md

runs the steps of pages and writes what they print today into their blocks of text. A block that is
still true stays as it is; of another, lines that are left out (`...`) stay left out. A new block of
text is a line with a question mark.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1] / "kip33" / "docs"
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
STEP, INSTALL, WITH_JAVA = "step", "install", "step with Java"
LEFT_OUT, NEW = "...", "?\n"
PIP = re.compile(r"^(?:python3 -m )?pip .*(?:\\\n.*)*\n", re.MULTILINE)


class Block(NamedTuple):
    """A block of code; `output` is None if the page does not show what it prints."""

    mark: str
    language: str
    code: str
    output: str | None

    @property
    def is_step(self) -> bool:
        """Return whether it runs in the page's folder."""
        return self.mark in (STEP, INSTALL, WITH_JAVA)


def blocks_of(page: Path) -> list[Block]:
    """Return a page's blocks of code, in their order."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(one["mark"] or "", one["language"], one["code"], one["output"]) for one in found]


def pages_with_steps() -> list[Path]:
    """Return the pages of kip33/docs that run."""
    return [page for page in sorted(DOCS.rglob("*.md")) if any(b.is_step for b in blocks_of(page))]


def run_steps(page: Path, folder: Path) -> Iterator[tuple[Block, subprocess.CompletedProcess[str]]]:
    """Run a page's steps with this environment's kip33; yield each with what it printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for step in blocks_of(page):
        if not step.is_step:
            continue
        bash = ["bash", "-euo", "pipefail", "-c"]
        program = bash if step.language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*program, PIP.sub("", step.code) if step.mark == INSTALL else step.code],
            cwd=folder,
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if step.mark == WITH_JAVA else subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        yield step, done


def is_printed(shown: str, printed: str) -> bool:
    """Return whether a program printed what a page shows; spaces and frames do not count."""
    parts = [re.escape(_words(part)) for part in shown.split(LEFT_OUT)]
    return re.fullmatch(".*".join(parts), _words(printed)) is not None


def _words(text: str) -> str:
    return re.sub(r"[\s\u2500-\u257f]+", "", text)


def renew(page: Path) -> bool:
    """Run a page's steps and write what they print into it; return whether it changed."""
    text = page.read_text(encoding="utf-8")
    renewed_to = 0
    with tempfile.TemporaryDirectory(prefix="kip33-page-") as folder:
        for step, done in run_steps(page, Path(folder)):
            if done.returncode:
                raise SystemExit(f"{page}: {step.code}\n{done.stdout}")
            if step.output is None or is_printed(step.output, done.stdout):
                continue
            shown = step.code + "```\n```text\n"
            at = text.index(shown + step.output, renewed_to)
            new = shown + renewed(step, done.stdout, folder)
            text = text[:at] + new + text[at + len(shown + step.output) :]
            renewed_to = at + len(new)
    is_changed = text != page.read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    return is_changed


def renewed(step: Block, printed: str, folder: str) -> str:
    """Return what a page shows instead of a step's old output."""
    lines = list(_narrow(_without_what_differs(printed, folder)))
    if step.output != NEW:
        lines = list(_with_lines_left_out((step.output or "").splitlines(), lines))
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    assert is_printed(text, printed), f"{text}\nis not\n{printed}"
    return text


DIFFERS = (
    (r"\b([0-9]{20})-[0-9a-f]{12}\b", r"\1-..."),  # a snapshot
    (r"(?<=│ seconds )( *)│ +[0-9.,]+", r"\1│ ..."),
    (r"(?<=│ free )( *)│ +[0-9.,]+ [KMGT]iB", r"\1│ ..."),
    (r"\bin [0-9.,]+ s\b", "in ... s"),
    (r"\b[0-9a-f]{32}\b", LEFT_OUT),  # a plan
    (r"\brun [0-9a-f]{12}\b", "run ..."),
    (r"(?<=│ plan )( *)│ +[0-9a-f]{16}", r"\1│ ..."),
    (r'("(?:seconds|created_ms)": )[0-9.]+', r"\1..."),
)


def _without_what_differs(printed: str, folder: str) -> list[str]:
    """Return lines with `...` for folders, ids of snapshots, seconds and times of today."""
    text = printed.replace(folder, LEFT_OUT)
    for pattern, instead in DIFFERS:
        text = re.sub(pattern, instead, text)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return re.sub(rf"{day}T[0-9:.]+Z", LEFT_OUT, text).splitlines()


def _narrow(lines: list[str]) -> Iterator[str]:
    """Yield lines; tables have no wider columns than their cells need."""
    table: list[str] = []
    for line in lines:
        is_table = line[:1] in ("┏", "┃", "┡", "│", "├", "└")
        if line[:1] == "┏" or not is_table:
            yield from _narrow_table(table)
            table = []
        if is_table:
            table.append(line)
        else:
            yield line
    yield from _narrow_table(table)


def _narrow_table(table: list[str]) -> Iterator[str]:
    rows = [re.split("[│┃]", line)[1:-1] for line in table if line[0] in "│┃"]
    cuts = []
    for cells in zip(*rows, strict=True):
        width = max(map(len, cells))
        full = [cell.ljust(width) for cell in cells if cell.strip()] or [" " * width]
        before = min(len(cell) - len(cell.lstrip()) for cell in full)
        after = min(len(cell) - len(cell.rstrip()) for cell in full)
        cuts.append((width, before, width - after))
    for line in table:
        if line[0] in "│┃":
            parts = [
                cell.ljust(width)[start:stop]
                for cell, (width, start, stop) in zip(
                    re.split("[│┃]", line)[1:-1], cuts, strict=True
                )
            ]
            yield f"{line[0]} {f' {line[0]} '.join(parts)} {line[0]}"
        else:
            joint = next((mark for mark in line[1:-1] if mark not in "━─"), "")
            spans = [line[1] * (stop - start + 2) for _, start, stop in cuts]
            yield f"{line[0]}{joint.join(spans)}{line[-1]}"


def _with_lines_left_out(shown: list[str], lines: list[str]) -> Iterator[str]:
    """Yield the lines without those for which the old text has a line `...`."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    position = 0
    for number, part in enumerate(parts):
        if number:
            yield LEFT_OUT
        if not part:
            continue
        start = position if number == 0 else _nearest(part, lines, position, is_first=True)
        is_last = number == len(parts) - 1
        stop = len(lines) if is_last else _nearest(part, lines, start, is_first=False) + 1
        yield from lines[start:stop]
        position = stop


def _nearest(part: list[str], lines: list[str], position: int, *, is_first: bool) -> int:
    """Return where the first or last line of a part is now, with the frame beside it."""
    texts = part if is_first else part[::-1]
    frames = next((number for number, text in enumerate(texts) if _words(text)), 0)
    wanted = _words(texts[frames])
    likeness = {
        number: SequenceMatcher(None, wanted, _words(lines[number])).ratio()
        for number in range(position, len(lines))
    }
    found = max(likeness, key=likeness.__getitem__)
    step = -1 if is_first else 1
    for _ in range(frames):
        beside = found + step
        if position <= beside < len(lines) and not _words(lines[beside]):
            found = beside
    return found


def main(names: list[str]) -> None:
    """Renew pages: those that are named, or all."""
    for page in [Path(name).resolve() for name in names] or pages_with_steps():
        print(f"{page.relative_to(DOCS)}: {'renewed' if renew(page) else 'as before'}")


if __name__ == "__main__":
    main(sys.argv[1:])

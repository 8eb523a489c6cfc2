"""The pictures of kip33/docs: of a report, of the notebook's plots, of the plots of a report.

    python -m tests.page_pictures        # needs Chromium and Java

makes them again, on the demo archive. Each is reduced to few colours, so that it stays small.
"""

import base64
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.cli.test_notebook import executed
from tests.integration.browser.chromium import chromium
from tests.pages import DOCS, run_steps

PICTURES = DOCS / "pictures"
COLOURS = 48
WIDTH = 900
PARTS = {  # of a report, with a selector; from its top, and no more than this height
    "report": ("body", 900),
    "report-timelines": ("#timelines", 700),
}
BOX = "(r => [r.x, r.y + scrollY, r.width, r.height])(%s.getBoundingClientRect())"
NOTEBOOK = ("timeline", "retention")


def pictures(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each picture's name and its PNG; the pages run below a folder."""
    pages = {name: folder / name for name in ("report", "notebook")}
    for name, below in pages.items():
        below.mkdir()
        for step, done in run_steps(DOCS / f"how-to/{name}.md", below):
            assert done.returncode == 0, (step.code, done.stdout)
            if (below / "timelines.png").exists():
                break
    yield "timelines", (pages["notebook"] / "timelines.png").read_bytes()
    page = pages["report"] / "report.html"
    page.write_text(page.read_text().replace(str(page.parent), "/home/me"))
    with chromium(folder / "profile") as browser:
        browser.open(page, width=WIDTH, scheme="light")
        for name, (selector, most) in PARTS.items():
            x, y, width, height = browser.value_of(BOX % f"document.querySelector('{selector}')")
            clip = {"x": x, "y": y, "width": width, "height": min(height, most), "scale": 1}
            shot = browser.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
            yield name, base64.b64decode(shot["data"])
    outputs = executed(folder / "five-questions").outputs
    for section in NOTEBOOK:
        [plot] = [one for one in outputs[f"{section}-plot"] if one.output_type == "display_data"]
        yield f"notebook-{section}", base64.b64decode(plot.data["image/png"])


def main() -> None:
    """Make the pictures again."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kip33-pictures-") as folder:
        for name, png in pictures(Path(folder)):
            target = PICTURES / f"{name}.png"
            image = Image.open(io.BytesIO(png)).convert("RGB")
            image.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
            print(f"{target.name}: {target.stat().st_size:,} B")


if __name__ == "__main__":
    main()

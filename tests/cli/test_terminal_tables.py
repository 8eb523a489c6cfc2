"""Every command with rows, through a terminal: its tables fit, and its names stand whole."""

import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import termios
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest
from rich.cells import cell_len

from kip33.cli.tables import SEVERE, SUSPICIOUS
from kip33.demo import ODDITIES, make_archive, make_sensors
from kip33.formats.names import parse_partition_dir
from tests.cli.command_lines import CATALOG, OF_CATALOGS
from tests.cli.console import KIP33, PROJECT, Command, subprocess_of
from tests.faults.builds import build_here

SIZE = struct.Struct("HHHH")  # lines, characters, and the same in pixels
BROKERS = ("broker-1", "broker-2", "a rack in 東京")
ORPHAN = "broker-2/clicks-0/00000000000000009999.timeindex"
OFFSETS = "a-group-of-consumers,orders,0,107\na-group-of-consumers,sensors,1,50\n"
STYLES = re.compile(r"\x1b\[(?:0|1|31|33)m")  # bold, red, yellow
Terminal = Callable[..., str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an archive, two snapshots, an orphaned index, offsets and a plan."""
    root = tmp_path_factory.mktemp("shown")
    source = root / "archive"
    make_archive(source)
    shutil.copytree(source / "broker-1/orders-0", source / BROKERS[2] / "orders-0")
    build_here(source, root / "indexes")
    make_sensors(source)
    build_here(source, root / "indexes")
    (source / ORPHAN).write_bytes(b"")
    (root / "bucket/orders-0").mkdir(parents=True)
    shutil.copy2(source / "broker-1/orders-0/00000000000000000000.log", root / "bucket/orders-0")
    (root / "bucket/orders-0/00000000000000900000.log").write_bytes(b"?" * 99)
    layout = "{topic}-{partition}/{base_offset}.log"
    build_here(root / "bucket", root / "remote", layout=layout)
    (root / "offsets.csv").write_text(OFFSETS)
    return root


@pytest.fixture
def terminal(command: Command, shown: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a function that runs a command at a terminal of some characters a line."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def run(width: int, line: str) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE.pack(24, width, 0, 0))
        pieces: list[bytes] = []
        reader = Thread(target=lambda: pieces.extend(read_pieces(ours)))
        reader.start()
        with monkeypatch.context() as patch, os.fdopen(theirs, "w", encoding="utf-8") as stream:
            patch.chdir(shown)
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "__stdout__", stream)
            done = command(*line.split())
        reader.join()
        assert done.exit_code == 0, done
        return b"".join(pieces).decode().replace("\r\n", "\n")

    return run


def read_pieces(terminal: int) -> Iterable[bytes]:
    """Yield what is written to the other end, until that is closed."""
    with os.fdopen(terminal, "rb", buffering=0) as file:
        while True:
            try:
                yield file.read(65_536)
            except OSError:  # how Linux says that the other end is closed
                return


def partitions(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root / "archive"))
        for path in (root / "archive").glob("*/*")
        if parse_partition_dir(path.name)
    )


def of_topic(topic: str) -> Callable[[Path], list[str]]:
    return lambda root: [name for name in partitions(root) if f"/{topic}-" in name]


def with_bases(root: Path) -> list[str]:
    return [name for name in partitions(root) if "sensors" in name or "orders" in name]


def files(kind: str) -> Callable[[Path], list[str]]:
    """Return what returns the file of each segment, as a URI has it."""

    def names(root: Path) -> list[str]:
        logs = (root / "archive").rglob("*.log")
        paths = (log.relative_to(root / "archive").with_suffix(kind) for log in logs)
        return [quote(str(path)) for path in paths]

    return names


def topics(root: Path) -> list[str]:
    return sorted({name.rpartition("/")[2].rpartition("-")[0] for name in partitions(root)})


def said(*names: str) -> Callable[[Path], list[str]]:
    return lambda _: list(names)


ORDERS = "archive/broker-1/orders-0"
ROWS: dict[str, Callable[[Path], list[str]]] = {  # each line, and the names that stand whole
    "build archive --index-dir other": lambda root: [(root / "other/_catalog").as_uri()],
    "verify archive": lambda root: [quote(name) for name in partitions(root)],
    "verify quick archive --index-dir indexes": said("identical"),
    OF_CATALOGS["retention"]: partitions,
    f"{OF_CATALOGS['retention']} --show-broker-view": partitions,
    OF_CATALOGS["roll"]: with_bases,
    f"roll what-if {CATALOG} --segment-bytes 100000": partitions,
    f"{OF_CATALOGS['search']} --topic orders --all-replicas": of_topic("orders"),
    "records archive --topic orders --limit 5": said("orders", "order-0"),
    f"count {CATALOG} --per 1d": topics,
    "timestamps archive": partitions,
    OF_CATALOGS["lag"]: said("a-group-of-consumers", "broker-1/sensors-1"),
    OF_CATALOGS["failover"]: said("a-group-of-consumers", "sensors-1"),
    "dialects archive": said("recover", "minute-map", "inline"),
    f"catalog {CATALOG}": topics,
    f"catalog segments {CATALOG}": files(".log"),
    f"catalog {CATALOG} remote/_catalog": lambda root: [*partitions(root), "damage"],
    f"catalog segments {CATALOG} remote/_catalog": files(".log"),
    f"catalog orphans {CATALOG}": said(ORPHAN),
    f"catalog diff {CATALOG} 1 2": said("broker-1/sensors-1/00000000000000001000.log"),
    "restore archive --to data --dry-run --topic orders --topic payments": said(
        "orders-0", "payments-0"
    ),
    "repair archive/broker-1": said(f"audit.v1-0/{0:020d}.log", f"orders-0/{4000:020d}.log"),
    f"report {CATALOG} --output page.html": said("problem", "warning"),
    f"truncate {ORDERS} --to 15": said("00000000000000004000.timeindex"),
    f"dump {ORDERS}/00000000000000000000.log": said("2023-11-14T22:13:20.951Z"),
}


def test_tables_fit_and_names_stand_whole(
    terminal: Terminal, shown: Path, subtests: pytest.Subtests
) -> None:
    for line, names in ROWS.items():
        for width in (80, 40):
            with subtests.test(f"{line}, {width}"):
                text = STYLES.sub("", terminal(width, line))

                assert "\x1b" not in text
                framed = [one for one in text.splitlines() if one[:1] in tuple("┏┃┡│└")]
                assert [one for one in framed if cell_len(one) > width] == []
                assert [name for name in names(shown) if name not in text] == []
                (shown / "page.html").unlink(missing_ok=True)
                (shown / "page.json").unlink(missing_ok=True)


def test_words_have_the_color_of_their_severity(
    terminal: Terminal, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    red, yellow = "\x1b[31mwrong\x1b[0m", "\x1b[33mpadded\x1b[0m"
    for width in (100, 40):
        text = terminal(width, "verify archive")
        assert red in text and yellow in text
        assert "┃ \x1b" not in text  # a heading
    assert "\x1b[31m3 (" in terminal(200, f"retention {CATALOG} --retention-ms 7d --now 2023-12-01")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert red in command("verify", "archive").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal(100, "verify archive")


def test_every_word_with_a_color_is_one_that_kip33_says() -> None:
    modules = [path for path in (PROJECT / "kip33").rglob("*.py") if path.stem != "tables"]
    text = "".join(path.read_text() for path in modules)
    assert [word for word in SEVERE | SUSPICIOUS if f'"{word}"' not in text] == []


def test_the_demo_says_at_every_width_what_is_wrong(terminal: Terminal, tmp_path: Path) -> None:
    for width in (80, 100, 120):
        said = " ".join(terminal(width, f"demo {tmp_path}/{width}").replace("│", "").split())
        assert [one.what for one in ODDITIES if one.what not in said] == []
        assert "left out" not in said


def test_a_dump_fits_the_terminal_and_says_what_is_left_out(
    terminal: Terminal, subtests: pytest.Subtests
) -> None:
    log = f"{ORDERS}/00000000000000000000.log"
    wrong = "archive/broker-2/orders-0/00000000000000000000.timeindex"
    for line in (f"dump {log}", f"dump --records --payload {log}", f"dump {wrong}"):
        for width in (80, 100, 120, 200):
            with subtests.test(f"{line}, {width}"):
                text = terminal(width, line)
                assert max(map(len, text.splitlines())) <= width
                assert ("left out: " in text) == (width < 153 and log in line)


def test_sentences_below_a_table_are_wrapped_between_words(terminal: Terminal) -> None:
    line = f"retention {CATALOG} --retention-ms 7d --now 2023-12-01"
    text = terminal(80, line)

    first, *others = text[text.index("- broker-1/sensors-0: 3 segments of") :].splitlines()
    sentence = [first, *takewhile(lambda row: row.startswith("  "), others)]
    assert len(sentence) > 1 and all(len(row) <= 80 for row in sentence)
    assert " ".join(" ".join(sentence).split()) in terminal(1000, line)


def test_a_terminal_has_at_most_40_segments_with_a_problem(terminal: Terminal, shown: Path) -> None:
    for number in range(41):
        folder = shown / f"many/t-{number}"
        folder.mkdir(parents=True)
        shutil.copy2(shown / "archive/broker-1/orders-0/00000000000000000000.log", folder)
    assert "and 1 more segments; --format jsonl shows all" in terminal(100, "verify many")


def test_a_verify_with_problems_says_at_a_terminal_how_it_fails(
    terminal: Terminal, command: Command
) -> None:
    assert terminal(100, "verify archive").endswith("exit 0; with --fail-on problems it is 3\n")
    for text in (
        terminal(100, "verify archive --index-dir indexes --topic sensors"),
        command("verify", "archive").stdout,
    ):
        assert "exit 0;" not in text


def test_columns_are_those_of_the_shell_if_it_says(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "│   remarks: " not in terminal(40, f"retention {CATALOG} --retention-ms 7d")


def test_a_pipe_has_lines_as_long_as_the_shell_says(
    command: Command, shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = command("verify", shown / "archive").stdout.splitlines()
    assert max(map(len, lines)) <= 100 and "│   problems:" in "".join(lines)


def test_a_pipe_has_all_columns_on_one_line(command: Command, shown: Path) -> None:
    done = command("catalog", "segments", shown / CATALOG)

    assert (done.exit_code, done.stderr) == (0, "")
    [line] = [one for one in done.stdout.splitlines() if "clicks-0" in one]
    assert "truncated" in line and "the batch's size points past the end of the file" in line


def test_an_ascii_pipe_has_a_frame_of_ascii(shown: Path) -> None:
    done = subprocess_of(KIP33, "catalog", CATALOG, cwd=shown, PYTHONIOENCODING="ascii")

    assert done.stdout.isascii() and "\\u" not in done.stdout
    assert "| topic    | partitions |" in done.stdout

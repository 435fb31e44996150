"""Every code block of README and docs is run, in the order of its page, in a folder of its own.

Python runs in one namespace per page; shell commands in bash, with stand-ins for `make` and `pip` that check what is
asked of them (targets and extras exist). Blocks that cannot run here say why, and their commands must still parse.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from blocks import ROOT, blocks, pages

from dpspectral.cli import main

PAGES = [page for page in pages() if any(block.kind for block in blocks(page))]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

STAND_IN = """#!{python}
import sys
sys.path.insert(0, {here!r})
from test_blocks import check_{tool}
check_{tool}(sys.argv[1:])
"""


def check_make(words):
    unknown = set(words) - TARGETS
    assert words, "make needs a target here"
    assert not unknown, f"no target {unknown} in the Makefile"


def check_pip(words):
    assert words[0] == "install"
    for word in words[1:]:
        match = re.fullmatch(r"dpspectral\[([a-z,]+)\]", word)
        assert match is None or set(match[1].split(",")) <= set(EXTRAS), word


def commands(text):
    """Lines of a shell block, continued ones joined, comments gone."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def parsed(words):
    """The command line is understood: every command, option and value exists."""
    command, rest = main, words[1:]
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(click.Context(command), rest)
    command.make_context(name, list(rest), resilient_parsing=False)


def with_ports(text, ports):
    """Ports of this machine in a page are whichever are free."""

    def free(match):
        if match[0] not in ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                ports[match[0]] = f"127.0.0.1:{probe.getsockname()[1]}"
        return ports[match[0]]

    return re.sub(r"127\.0\.0\.1:\d+", free, text)


@pytest.fixture
def shell(tmp_path):
    """Runs a block in bash; what it starts in the background ends with it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("make", "pip"):
        (tools / tool).write_text(STAND_IN.format(python=sys.executable, here=str(Path(__file__).parent), tool=tool))
        (tools / tool).chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def run(text):
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            told, _ = process.communicate(timeout=400)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{text}\n{told}"

    run.folder = folder
    return run


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_blocks_run(page, shell, monkeypatch, capsys):
    monkeypatch.chdir(shell.folder)
    names: dict[str, object] = {"__name__": "__main__"}
    left_out, ports = [], {}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.how == "skip" or block.kind in ("", "math"):
            left_out += [f"{where}: {block.why}"] if block.how == "skip" else []
        elif block.how == "parse":
            (shell.folder / "FOLDER").mkdir(exist_ok=True)
            for words in commands(block.text):
                if words[0] == "dpspectral":
                    parsed(words)
                elif words[0] == "python":
                    assert (ROOT / words[1]).is_file(), f"{where}: no {words[1]}"
            left_out.append(f"{where}: {block.why}")
        elif block.kind == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
        elif block.kind == "sh":
            shell(with_ports(block.text, ports))
        elif block.kind == "toml":
            tomllib.loads(block.text)
        else:
            pytest.fail(f"{where}: a block of kind {block.kind!r} is not run; use python, sh or toml")
    if left_out:
        print("not run:", *left_out, sep="\n  ")


def test_reasons_are_given():
    """Who leaves a block out says why, and no page leaves out all of its blocks without saying so."""
    for page in PAGES:
        for block in blocks(page):
            assert block.how in ("run", "parse", "skip")
            assert block.how == "run" or len(block.why) > 5


def test_the_readers_of_blocks_notice_mistakes(tmp_path):
    with pytest.raises(click.UsageError):
        parsed(["dpspectral", "fit", "x", "--rnk", "3"])
    with pytest.raises(AssertionError):
        check_pip(["install", "dpspectral[nonsense]"])
    with pytest.raises(AssertionError):
        check_make(["nonsense"])
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- test: run\nx = 1\n-->\n\n```python\ny = x\n```\n<!-- test: skip, no gpu -->\n```sh\nls\n```\n"
    )
    listed = [(block.kind, block.how, block.why, block.line) for block in blocks(page)]
    assert listed == [("python", "run", "", 3), ("python", "run", "", 7), ("sh", "skip", "no gpu", 11)]


@pytest.mark.parametrize("page", pages(), ids=[str(page.relative_to(ROOT)) for page in pages()])
def test_links_lead_somewhere(page):
    """Also outside the site, for readers of the repository."""
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"

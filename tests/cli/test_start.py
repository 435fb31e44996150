"""Fast to start: help, mistakes and `import dpspectral` load no scientific library, and Ctrl-C then is one line."""

import dataclasses
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

import dpspectral
from dpspectral.cli import main, start
from dpspectral.core import names

HEAVY = ("numba", "sklearn", "scipy", "matplotlib", "numpy", "pandas", "torch", "rich")
REPORT = "import sys, json; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
RUN = "import sys; sys.argv[0] = 'dpspectral'; from dpspectral.cli import entry; entry()"
# Says at its end which libraries are loaded, however it ends.
WATCHED = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr))
{RUN}
"""
# What happens at the moment when a module is first looked for.
LOOKED_FOR = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            {happens}
sys.meta_path.insert(0, Finder())
"""
CTRL_C = "os.kill(os.getpid(), signal.SIGINT)"
MISSING = "raise ModuleNotFoundError(f'No module named {name!r}', name=name)"
posix = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")


def python(code, *words, **options):
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300, **options)


def commands():
    """Every command with its path: ("fit",), ("ledger", "create"), …"""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (((name, sub), command.commands[sub]) for sub in command.commands)
        yield (name,), command


COMMANDS = dict(commands())


@pytest.mark.parametrize("module", ["dpspectral", "dpspectral.cli", "dpspectral.cli.commands.fit"])
def test_importing_loads_nothing_heavy(module):
    loaded = json.loads(python(f"import {module}; {REPORT}").stdout)
    assert not set(HEAVY) & set(loaded)


def test_what_commands_share_is_light():
    loaded = json.loads(python(f"import dpspectral.cli.console; {REPORT}").stdout)
    assert not {"numba", "sklearn", "scipy", "matplotlib"} & set(loaded)


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--help", 0, "Before there is data"),
        ("--version", 0, dpspectral.__version__),
        ("", 2, "Usage"),
        ("nonsense", 2, "No such command"),
        ("fit", 2, "Missing argument 'DATA...'"),
        ("fit --help", 0, "--epsilon"),
        ("completion bash", 0, "_DPSPECTRAL_COMPLETE"),
        ("peer", 2, "--make-keys"),
        ("plan --users 9 --items 9 --rank 1 --epsilon 1 --delta 0.1 --upload much", 2, "20MB"),
        ("fit x --rank 1 --epsilon 1 --delta 0.1 --out y --unit rows", 2, "--row-norm"),
        ("fit x --rank 1 --epsilon 1 --delta 0.1 --out y --catalogue some", 2, "--catalogue takes"),
        ("federate x --parties 3 --rank 1 --epsilon 1 --delta 0.1 --out y --degree 2", 2, "--engine peers"),
    ],
)
def test_help_and_mistakes_load_nothing_heavy(line, code, says):
    outcome = python(WATCHED, *line.split())
    assert outcome.returncode == code, outcome.stderr
    assert says in outcome.stdout + outcome.stderr
    assert outcome.stderr.splitlines()[-1] == "loaded:"


def test_no_command_needs_anything_heavy_for_help_or_a_wrong_option():
    """All of them in one process: what one of them loads would be seen."""
    code = f"""
from click.testing import CliRunner
from dpspectral.cli import main
for words in {[list(path) for path in COMMANDS]!r}:
    for option, code in (("--help", 0), ("--no-such-option", 2)):
        outcome = CliRunner().invoke(main, [*words, option])
        assert outcome.exit_code == code, (words, option, outcome.output)
{REPORT}
"""
    outcome = python(code)
    assert outcome.returncode == 0, outcome.stderr
    assert not set(HEAVY) & set(json.loads(outcome.stdout))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_what_a_command_takes_is_what_it_does_something_with(path, monkeypatch):
    """Options and the function that gets them are in two files."""
    command = COMMANDS[path]
    if isinstance(command, click.Group) or path == ("completion",):
        return
    called = []

    def load(module):
        owner = sys.modules.get(module) or real(module)
        body = getattr(owner, path[-1])
        return SimpleNamespace(**{path[-1]: lambda **options: called.append((body, options))})

    real = start.import_module
    monkeypatch.setattr(start, "import_module", load)
    options = {parameter.name: None for parameter in command.params}
    options |= {"config": "x"} if path == ("peer",) else {"catalogue": "auto"} if "catalogue" in options else {}
    with click.Context(command):
        command.callback(**options)
    ((body, given),) = called
    bound = inspect.signature(body).bind(**given)
    if "options" in bound.arguments:  # the rest is for `FitOptions`
        from dpspectral.cli.basis import FitOptions

        FitOptions(**bound.arguments["options"])


def test_names_of_options_are_names_of_something():
    from dpspectral.audit import ATTACKS
    from dpspectral.data.reading import Reading
    from dpspectral.studies.curves import LABELS

    assert tuple(LABELS) == names.CURVES
    assert len(ATTACKS) == len(names.MECHANISMS)
    assert tuple(field.name for field in dataclasses.fields(Reading)) == names.READING
    for delimiter in names.DELIMITERS:
        assert Reading(delimiter=delimiter).layout(Path("x")).words
    for format in names.FORMATS:
        assert Reading(format=format).layout(Path("x")).words


def test_public_names():
    listed = set(dpspectral.__all__)
    source = Path(dpspectral.__file__).read_text()
    seen_by_checkers = source[source.index("if TYPE_CHECKING") : source.index("__version__")]
    imported = {
        (name.split(" as ")[0], module)
        for module, these in re.findall(r"from dpspectral\.(\S+) import (.+)", seen_by_checkers)
        for name in these.split(", ")
    }
    assert imported == set(dpspectral._MODULES.items())
    assert listed | set(dpspectral._EXTRAS) == set(dpspectral._MODULES)
    assert listed <= set(dir(dpspectral))
    assert all(hasattr(dpspectral, name) for name in dir(dpspectral))
    for name in ("decompose", "dense_release", "plan", "power_method", "read"):
        assert inspect.isfunction(getattr(dpspectral, name))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dpspectral.Nothing  # noqa: B018


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("DaskRows", "distributed", "dask"), ("GpuRows", "torch", "gpu")]
)
def test_a_missing_extra_is_named(name, module, extra):
    absent = LOOKED_FOR.format(name=module, happens=MISSING)
    outcome = python(f"{absent}import dpspectral\nfrom dpspectral import *\ndpspectral.{name}")
    last = outcome.stderr.splitlines()[-1]
    assert last.startswith("ImportError")
    assert f"pip install 'dpspectral[{extra}]'" in last


def test_the_root_holds_nothing_else():
    root = Path(dpspectral.__file__).parent
    assert {file.name for file in root.iterdir() if file.is_file()} == {"__init__.py", "py.typed"}


@posix
@pytest.mark.parametrize("module", ["click", "click.types", "dpspectral.cli.commands.budget", "rich", "numpy", "scipy"])
def test_ctrl_c_while_libraries_are_loaded_is_one_line(module):
    words = ["budget", "--epsilon", "1", "--delta", "1e-6"]
    outcome = python(LOOKED_FOR.format(name=module, happens=CTRL_C) + RUN, *words)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, "", "interrupted\n")


@posix
def test_ctrl_c_is_ignored_where_it_was_before():
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    outcome = python(ignored + LOOKED_FOR.format(name="click", happens=CTRL_C) + RUN, "--version")
    assert outcome.returncode == 0, outcome.stderr


@posix
def test_commands_get_the_usual_exception_once_they_run():
    """After loading, Ctrl-C is the command's own: here of one that only looks how it is handled."""
    code = (
        "import signal, sys, types; from dpspectral.cli import start\n"
        "def body(): print(signal.getsignal(signal.SIGINT) is signal.default_int_handler); signal.raise_signal(2)\n"
        "sys.modules['dpspectral.cli.stub'] = types.SimpleNamespace(body=body)\n"
        "start.end_quietly(); start.do('stub:body')"
    )
    outcome = python(code)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, "True\n", "interrupted\n")


@posix
@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
def test_ctrl_c_at_any_moment_leaves_no_traceback_of_ours(delay, tmp_path):
    """Sent as soon as Python is about to run our code, or a while later; where exactly it strikes is left open."""
    code = f"print('here', flush=True)\n{RUN}"
    words = ["sample", str(tmp_path / "try"), "--users", "10", "--items", "40"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "here\n"
        try:
            child.wait(delay)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=300)
    finally:
        child.kill()
    if child.returncode == -signal.SIGINT:  # Python itself answers before `entry` is called, and once it is finished
        assert "in entry" not in told
    elif child.returncode == 130:
        assert told == "interrupted\n"
    else:
        assert (child.returncode, told) == (0, "")

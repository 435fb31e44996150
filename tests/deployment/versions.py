"""The quick tests with every Python that is here (3.11 to 3.14), newest dependencies; and 3.11 with the lowest ones.

    make test-versions

Lowest versions are read off pyproject.toml. Flower and the accountants that tests compare with are left out there: they
ask for newer versions of their own. Environments are made in .venv-versions and kept.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "linalg", "privacy", "release", "data", "methods", "models", "cli", "reports", "compatibility")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "pandas", "polars")
NOT_LOWEST = ("test_accounting", "test_budget", "test_claims")  # compared with dp-accounting


def lowest() -> list[str]:
    """name==lowest of everything that the package and the extras for files, peers and clusters need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for name in ("files", "peers", "dask", "test") for one in extras[name])]
    found = {}
    for one in asked:
        match = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one)
        if match and (one not in extras["test"] or match[1] in TOOLS[4:]):
            found[match[1]] = match[2]
    return [f"{name}=={version}" for name, version in found.items()]


def python_of(version: str) -> str | None:
    path = shutil.which(f"python{version}")
    if path is None or subprocess.run([path, "-c", "1"], capture_output=True, check=False).returncode:
        return None
    return path


def run(name: str, python: str, packages: list[str], skipped: tuple[str, ...] = ()) -> bool:
    folder = ROOT / ".venv-versions" / name
    inner = folder / "bin" / "python"
    if not inner.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    install = [str(inner), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(install, check=True, cwd=ROOT)
    left_out = [f"--ignore-glob=*{one}*" for one in skipped]
    tests = [str(inner), "-m", "pytest", "-p", "no:cacheprovider", "-n", "auto", "-m", "not slow and not statistical"]
    done = subprocess.run([*tests, *left_out, *(f"tests/{room}" for room in ROOMS)], cwd=ROOT, check=False)
    print(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    return done.returncode == 0


def main() -> None:
    good = []
    for version in ("3.11", "3.12", "3.13", "3.14"):
        python = python_of(version)
        if python is None:
            print(f"{version}: not here")
            continue
        good.append(run(version, python, ["-e", ".[test]"]))
    if (python := python_of("3.11")) is not None:
        packages = ["-e", ".[files,peers,dask]", *TOOLS[:4], *lowest()]
        good.append(run("3.11-lowest", python, packages, NOT_LOWEST))
    sys.exit(not all(good))


if __name__ == "__main__":
    main()

"""What a built wheel and sdist hold, and whether the wheel does its job in an empty environment, without the sources.

    make package      (or: python tests/deployment/wheel.py DIST)

Also writes DIST/sbom.json (CycloneDX): the wheel and all that it installs. Needs cyclonedx-bom.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

FIRST = """
import numpy as np
from dpspectral import Budget, Interaction, decompose
rows = np.random.default_rng(0).random((400, 60)) < 0.2
print(decompose(rows, 4, unit=Interaction(), budget=Budget(5, 1e-6)).components.shape)
"""


def check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        meta = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = wheel.read(meta).decode()
    own = [name for name in names if ".dist-info/" not in name]
    assert all(name.startswith("dpspectral/") for name in own), "the wheel holds something else than the package"
    assert "dpspectral/py.typed" in own
    assert any(name.endswith("/licenses/LICENSE") for name in names), "the licence is missing"
    assert not any(name.endswith((".npz", ".csv", ".db", ".pyc", ".nbi", ".nbc")) for name in own), "data in the wheel"
    assert "License-Expression: Apache-2.0" in text
    print(f"{path.name}: {len(own)} files, {path.stat().st_size / 1e6:.2f} MB")


def check_sdist(path: Path) -> None:
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src/dpspectral/__init__.py"):
        assert needed in names, f"{needed} is missing"
    assert not any(name.startswith((".venv", "site/", "demo-report")) for name in names)
    print(f"{path.name}: {len(names)} files, {path.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / "bin"

        def run(program: str, *arguments: str) -> None:
            subprocess.run([str(programs / program), *arguments], check=True, cwd=folder)

        run("pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
        run("python", "-c", FIRST)
        run("dpspectral", "demo", "--out", "report")
        bill = [sys.executable, "-m", "cyclonedx_py", "environment", str(programs / "python")]
        subprocess.run([*bill, "--output-file", str(dist / "sbom.json")], check=True)
    print(f"{dist / 'sbom.json'}: written")


if __name__ == "__main__":
    main()

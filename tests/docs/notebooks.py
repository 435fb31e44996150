"""Runs the notebooks of examples/ without Jupyter: cells in order, in one namespace, in a folder of their own.

    python tests/docs/notebooks.py --write      (also keeps what cells print and show in the notebooks; noise is fresh)

Shown are what a cell prints and its last expression: figures as PNG, everything else as text.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def run(notebook: dict[str, Any], name: str) -> None:
    """Execute the cells in the current folder; outputs are put into the notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        tree = ast.parse("".join(cell["source"]), f"{name}, cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed, shown = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{name}, cell {number}", "exec"), names)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), f"{name}, cell {number}", "eval"), names)
        cell["execution_count"], cell["outputs"] = number, _outputs(printed.getvalue(), shown, number)


def _outputs(printed: str, shown: Any, number: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if printed:
        made.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if shown is not None:
        data: dict[str, Any] = {"text/plain": repr(shown).splitlines(keepends=True)}
        if hasattr(shown, "savefig"):
            picture = io.BytesIO()
            shown.savefig(picture, format="png", dpi=80, metadata={"Software": None})
            data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["a figure"]}
        made.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return made


def main() -> None:
    for file in NOTEBOOKS:
        notebook = json.loads(file.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run(notebook, file.name)
        if "--write" in sys.argv[1:]:
            file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{file.name}: {sum(cell['cell_type'] == 'code' for cell in notebook['cells'])} cells")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()

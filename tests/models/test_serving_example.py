"""The FastAPI example, run as a service in this process, from several threads."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpspectral import PrivateRecommender
from dpspectral.data.synthetic import tastes

pytest.importorskip("fastapi", reason="the example needs fastapi: pip install fastapi httpx")
pytest.importorskip("httpx", reason="the example's test needs httpx: pip install fastapi httpx")
pytestmark = pytest.mark.filterwarnings("default")  # those of starlette are its own

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve.py"


def test_the_example_serves_what_the_model_says(tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    R = tastes(1500, 120)
    model = PrivateRecommender(8, epsilon=4, delta=1e-6).fit(R)
    model.save(tmp_path / "model.npz", items=[f"film {k}" for k in range(120)])
    monkeypatch.setenv("DPSPECTRAL_MODEL", str(tmp_path / "model.npz"))
    spec = importlib.util.spec_from_file_location("serve_example", EXAMPLE)
    serve = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "serve_example", serve)  # annotations are looked up there
    spec.loader.exec_module(serve)
    client, loaded = TestClient(serve.app), PrivateRecommender.load(tmp_path / "model.npz")

    def asked(k):
        items = [f"film {k}", f"film {k + 1}", "unheard of"]
        found = client.post("/recommend", json={"items": items, "top": 4, "exclude": ["film 7"]})
        assert found.status_code == 200
        return [one["item"] for one in found.json()]

    with ThreadPoolExecutor(4) as pool:
        lists = list(pool.map(asked, range(20)))
    for k, found in enumerate(lists):
        own = loaded.recommend([f"film {k}", f"film {k + 1}"], 4, exclude=["film 7"])
        assert found == [item for item, _ in own]
    assert client.post("/recommend", json={"items": [], "only": ["no such film"]}).status_code == 422
    assert client.post("/recommend", json={"items": [], "top": 0}).status_code == 422
    kept = loaded.items_[loaded.result_.catalogue.chosen[0]]
    assert len(client.get(f"/similar/{kept}", params={"top": 3}).json()) == 3
    assert client.get("/similar/nothing").status_code == 404
    assert client.get("/promise").json()["epsilon"] == pytest.approx(4)

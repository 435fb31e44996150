"""A recommendation service in a few lines: FastAPI around a saved model.

    pip install dpspectral fastapi uvicorn
    DPSPECTRAL_MODEL=model.npz uvicorn examples.serve:app

    curl -X POST localhost:8000/recommend -H 'content-type: application/json' -d '{"items": ["film 3"], "top": 5}'

The model holds released figures alone. A request brings what one user has; the answer is for that user. Nothing of a
request is kept or logged here: see to it that the server's access log does not keep bodies either.
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from dpspectral import PrivateRecommender


class Request(BaseModel):
    items: list[str | int]
    top: int = Field(20, ge=1, le=1000)
    only: list[str | int] | None = None
    exclude: list[str | int] | None = None


def service(model: PrivateRecommender) -> FastAPI:
    app = FastAPI(title="Private recommendations")

    @app.post("/recommend")
    def recommend(asked: Request) -> list[dict[str, Any]]:  # FastAPI calls this from several threads
        try:
            lists = {"only": asked.only, "exclude": asked.exclude}
            return [found._asdict() for found in model.recommend(asked.items, asked.top, unknown_items="drop", **lists)]
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    @app.get("/similar/{item}")
    def similar(item: str, top: int = 10) -> list[dict[str, Any]]:
        try:
            return [found._asdict() for found in model.similar_items(item, top)]
        except ValueError as error:
            raise HTTPException(404, str(error)) from error

    @app.get("/promise")
    def promise() -> dict[str, Any]:
        return model.result_.statement()

    return app


def __getattr__(name: str) -> Any:
    if name == "app":  # for uvicorn
        return service(PrivateRecommender.load(os.environ["DPSPECTRAL_MODEL"]))
    raise AttributeError(name)

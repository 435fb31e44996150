"""What a party's operator can watch: counts of messages, runs, and what is left of the ledger. Prometheus' format.

For the operator alone, on this machine: no times are among them, because the time that an answer takes is proportional
to the number of the party's interactions. Needs the extra dpspectral[metrics].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpspectral.deploy.party.plan import NotAllowedError
from dpspectral.deploy.party.service import Service
from dpspectral.protocols.secure_sum.messages import Kind

HOST = "127.0.0.1"


class Metrics:
    """Of one party's process. `watch` what answers messages, then `serve`."""

    def __init__(self, service: Service) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge
        except ImportError as error:
            raise ValueError("--metrics needs the extra: pip install 'dpspectral[metrics]'") from error
        self.registry = CollectorRegistry()  # without the usual collectors, which tell CPU seconds
        labels = {"registry": self.registry}
        self._answered = Counter("dpspectral_party_answers", "Messages that were answered.", ["stage"], **labels)
        self._refused = Counter("dpspectral_party_refusals", "Messages that were not answered.", ["by"], **labels)
        for by in ("policy", "protocol", "error"):
            self._refused.labels(by)
        figures: dict[str, tuple[str, Callable[[], float]]] = {
            "runs": ("Runs that this process takes part in.", lambda: service.runs),
            "waiting": ("Runs that wait for approval.", lambda: service.waiting),
            "ledger_mu_spent": ("μ spent by all runs so far.", lambda: service.spent),
            "ledger_mu_total": ("μ that the ledger allows in all.", lambda: service.total),
        }
        for name, (words, figure) in figures.items():
            Gauge(f"dpspectral_party_{name}", words, **labels).set_function(figure)

    def watch(self, receive: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """The same, counted."""

        def counted(content: bytes) -> bytes:
            try:
                answer = receive(content)
            except NotAllowedError:
                self._refused.labels("policy").inc()
                raise
            except (ValueError, RuntimeError):
                self._refused.labels("protocol").inc()
                raise
            except Exception:
                self._refused.labels("error").inc()
                raise
            self._answered.labels(Kind(content[5]).name.lower()).inc()  # it was answered, so it is a frame
            return answer

        return counted

    def serve(self, port: int) -> Callable[[], Any]:
        """On this machine only; returns what ends it."""
        from prometheus_client import start_http_server

        server, thread = start_http_server(port, HOST, self.registry)

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return close

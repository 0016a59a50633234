"""Testing a scoring service from outside: the attack sees an HTTP address and the probabilities that come back, nothing else.

    make mnist
    python examples/attack_http.py

It trains a network for handwritten digits (once, half a minute), serves it on this machine as `POST /score`, with
probabilities rounded to six digits as services do, and attacks the address. Attack only services that are yours, or that
you were asked to test.
"""

from __future__ import annotations

import argparse
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from zoar.attack import AttackResult, attack
from zoar.study.attack_victim import victim
from zoar.study.folder import Refused


class ScoringService:
    """The network behind HTTP on a free port of this machine; as a context manager it runs and stops."""

    def __init__(self, network: torch.nn.Module) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # one connection serves many requests
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                pixels = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["images"]
                with torch.inference_mode():
                    probabilities = network(torch.tensor(pixels)).double().exp().numpy().round(6)
                answer = json.dumps({"probabilities": probabilities.tolist()}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}/score"

    def __enter__(self) -> ScoringService:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def ask(address: str, images: np.ndarray) -> np.ndarray:
    """What anyone could send. This is all that the attack has."""
    body = json.dumps({"images": images.round(6).tolist()}).encode()
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=60) as answer:
        return np.array(json.load(answer)["probabilities"])


def show(result: AttackResult, before: np.ndarray, after: np.ndarray, console: Console) -> None:
    table = Table("image", "said before", "says now", "evaluations", "largest change of a pixel")
    for i, evaluations in enumerate(result.evaluations):
        now = f"[bold]{after[i]}[/]" if result.success[i] else str(after[i])
        table.add_row(str(i), str(before[i]), now, f"{evaluations:,}", f"{result.distances[i]:.3f}")
    console.print(table)
    console.print(str(result), highlight=False)


def draw(
    images: np.ndarray, result: AttackResult, before: np.ndarray, after: np.ndarray, epsilon: float, path: Path
) -> None:
    """Each image, what was added to it, and what came of it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(images)
    figure = Figure(figsize=(1.25 * count, 4.3), layout="constrained")
    axes = figure.subplots(3, count, squeeze=False)
    rows = (images, result.images - images, result.images)
    for row, (pictures, low) in enumerate(zip(rows, (0.0, -epsilon, 0.0), strict=True)):
        for column, picture in enumerate(pictures):
            axis = axes[row, column]
            axis.imshow(
                picture.reshape(28, 28),
                cmap="RdBu_r" if row == 1 else "gray",
                vmin=low,
                vmax=epsilon if row == 1 else 1,
            )
            axis.set_xticks([])
            axis.set_yticks([])
            if row != 1:
                axis.set_title(f"“{(before if row == 0 else after)[column]}”", fontsize=11)
    for axis, name in zip(axes[:, 0], ("before", "change", "after"), strict=True):
        axis.set_ylabel(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8, help="how many of the test images (default: 8)")
    parser.add_argument("--epsilon", type=float, default=0.15, help="largest change of a pixel (default: 0.15)")
    parser.add_argument("--max-queries", type=int, default=3_000, help="evaluations an image may cost (default: 3000)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/attack_http.png"), help="the picture (default: %(default)s)"
    )
    arguments = parser.parse_args()
    console = Console()
    torch.set_num_threads(1)
    try:
        known = victim()
    except Refused as refused:
        raise SystemExit(f"attack_http: {refused}") from None
    chosen = known.right(4 * arguments.images)[: arguments.images]
    images, labels = known.images[chosen].numpy(), known.labels[chosen].numpy()
    with ScoringService(known.network) as service, Progress(console=console, transient=True) as progress:
        console.print(f"A service with {known.accuracy:.1%} accuracy answers at {service.address}.", highlight=False)
        task = progress.add_task("images that are over", total=len(images))
        result = attack(
            lambda points: ask(service.address, points), images, labels, epsilon=arguments.epsilon,
            max_queries=arguments.max_queries, progress=lambda over, _: progress.update(task, completed=over),
        )  # fmt: skip
        after = ask(service.address, result.images).argmax(-1)
    show(result, labels, after, console)
    draw(images, result, labels, after, arguments.epsilon, arguments.out)
    console.print(f"The picture is {arguments.out}.", highlight=False)


if __name__ == "__main__":
    main()

"""A headless Chromium, controlled by the WebDriver protocol without further packages."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.request import Request, urlopen

MISSING = not (shutil.which("chromedriver") and shutil.which("chromium"))
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu"]


class Browser:
    """One session: opens a page, runs scripts in it, presses keys."""

    def __init__(self, port: int, width: int, *more: str) -> None:
        self._root = f"http://127.0.0.1:{port}"
        options = {"args": [*ARGUMENTS, f"--window-size={width},900", *more]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def open(self, url: str) -> None:
        """Load a page and wait until its script is ready."""
        self._ask("POST", f"{self._session}/url", {"url": url})
        for _ in range(100):
            if self.run("return document.body.dataset.ready"):
                return
            time.sleep(0.05)
        raise AssertionError(f"the page does not get ready: {self.errors()}")

    def run(self, script: str) -> Any:
        """The result of a script in the page."""
        body = {"script": script, "args": []}
        return self._ask("POST", f"{self._session}/execute/sync", body)

    def enter(self, selector: str) -> None:
        """Enter a frame and wait until its script is ready."""
        found = {"using": "css selector", "value": selector}
        frame = self._ask("POST", f"{self._session}/element", found)
        self._ask("POST", f"{self._session}/frame", {"id": frame})
        for _ in range(100):
            if self.run("return document.body.dataset.ready"):
                return
            time.sleep(0.05)
        raise AssertionError("the frame does not get ready")

    def press(self, keys: str) -> None:
        """Type keys into the page."""
        acts = [{"type": t, "value": k} for k in keys for t in ("keyDown", "keyUp")]
        body = {"actions": [{"type": "key", "id": "keyboard", "actions": acts}]}
        self._ask("POST", f"{self._session}/actions", body)

    def errors(self) -> list[str]:
        """The errors in the console, including violations of the content security policy."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] == "SEVERE"]

    def close(self) -> None:
        """End the session."""
        self._ask("DELETE", self._session)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self._root + path, data, headers, method=method), timeout=60) as got:
            return json.load(got)["value"]


@contextmanager
def driver() -> Iterator[int]:
    """Start chromedriver; its port."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()

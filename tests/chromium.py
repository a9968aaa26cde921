"""A headless Chromium, spoken to over a pipe: enough to use a page as a person does."""

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["PROGRAM", "Browser"]

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


class Browser:
    """One page in one browser; a context that ends both.

    Attributes:
        errors: what the page reported: exceptions, errors in its console, refused resources.
    """

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
        browser = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        arguments = [*flags.split(), f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            ["bash", "-c", browser, PROGRAM, *arguments, "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        self.errors: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._session = None
            self.send("Browser.close")
        except (OSError, EOFError):
            pass
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._in, 1 << 16)
            if not data:
                raise EOFError("the browser has gone")
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        event = json.loads(text)
        about = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and about["type"] == "error":
            self.errors.append(json.dumps(about["args"]))
        return event

    def open(self, page: Path | str, width: int = 1280, height: int = 900, **media: str) -> None:
        """Load a file or an address in a window of this size; media features with `_` for `-`."""
        features = [{"name": k.replace("_", "-"), "value": v} for k, v in media.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.run(
            "new Promise(done => document.readyState === 'complete' ? done() : "
            "addEventListener('load', done)).then(() => new Promise(requestAnimationFrame))"
        )

    def run(self, script: str) -> Any:
        """The value of a script, waited for if it is a promise."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **options: Any) -> None:
        """An event of the mouse: moved, pressed, released or wheel."""
        name = "mouseWheel" if kind == "wheel" else f"mouse{kind.capitalize()}"
        if kind != "wheel" and (kind != "moved" or options.get("buttons")):
            options = {"button": "left", "clickCount": 1} | options
        self.send("Input.dispatchMouseEvent", type=name, x=x, y=y, **options)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press at one place, move to another and let go."""
        self.mouse("moved", *start)
        self.mouse("pressed", *start, buttons=1)
        for share in (0.3, 0.7, 1.0):
            x, y = (a + share * (b - a) for a, b in zip(start, end, strict=True))
            self.mouse("moved", x, y, buttons=1)
        self.mouse("released", *end)

    def press(self, key: str, text: str = "") -> None:
        """Press a key and let go."""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, file: Path, **clip: float) -> None:
        """A picture of the window, or of the whole page with `full=1`."""
        options: dict[str, Any] = {}
        if clip.pop("full", 0):
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": size | {"scale": 1}}
        data = self.send("Page.captureScreenshot", format="png", **options)["data"]
        file.write_bytes(base64.b64decode(data))

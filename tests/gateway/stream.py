"""A transfer that runs while a test does something to what carries it."""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.gateway.network import SERVER4, Lan
from tests.interop.netns import wait_for


@dataclass
class Stream:
    """A TCP connection of the client's that the server echoes, numbered bytes, until it is ended."""

    net: Lan
    failure: list[BaseException] = field(default_factory=list)
    moved: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Stream":
        self.listener = self.net.server.open_socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind((SERVER4, 0))
        self.listener.listen(1)
        self.inside = self.net.client.open_socket(socket.AF_INET, socket.SOCK_STREAM)
        self.inside.settimeout(60)
        self.inside.connect(self.listener.getsockname())
        self.outside, _ = self.listener.accept()
        self.outside.settimeout(60)
        self.threads = [threading.Thread(target=self.guard, args=(f,), daemon=True) for f in (self.serve, self.run)]
        for thread in self.threads:
            thread.start()
        self.goes_on()
        return self

    def guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except (OSError, AssertionError) as error:
            self.failure.append(error)

    def serve(self) -> None:
        while chunk := self.outside.recv(1 << 16):
            self.outside.sendall(chunk)

    def run(self) -> None:
        number = 0
        while not self.ended.is_set():
            block = number.to_bytes(8, "big") * 4096
            self.inside.sendall(block)
            got = bytearray()
            while len(got) < len(block):
                chunk = self.inside.recv(len(block) - len(got))
                assert chunk, "the connection ended"
                got += chunk
            assert got == block, "content differs"
            self.moved += len(block)
            number += 1

    def goes_on(self, seconds: float = 15) -> None:
        """More of it arrives, within so many seconds."""
        before = self.moved
        wait_for("the transfer", lambda: self.moved > before + (1 << 18) or self.failure, seconds)
        assert not self.failure, repr(self.failure)

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.threads[1].join(15)
        self.inside.close()
        self.threads[0].join(15)
        self.outside.close()
        self.listener.close()
        assert not self.failure, repr(self.failure)

"""A TCP proxy between client and server that can go wrong in the ways networks do."""

from __future__ import annotations

import select
import socket
import struct
import threading

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Forwards connections to a server. What it does wrong can be changed while it runs.

    ``silent``: nothing passes any more, in either direction, and nothing is closed.
    ``delay``: every reply is so many seconds late.
    ``lose_reply_to``: the next request that contains these bytes gets through, and instead of its reply the
    connection is reset; ``lost`` counts those.
    """

    def __init__(self, dsn: str) -> None:
        server = conninfo_to_dict(dsn)
        self._server = (str(server["host"]), int(str(server["port"])))
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self.dsn = make_conninfo(dsn, port=self._listener.getsockname()[1])
        self.silent = False
        self.delay = 0.0
        self.lose_reply_to: bytes | None = None
        self.lost = 0
        self.connections = 0
        self._dropped = 0  # so many connections, the first ones, are silent for ever

    def drop(self) -> None:
        """As a firewall that forgets: what is connected now gets no answer any more, and is not told."""
        self._dropped = self.connections

    def __enter__(self) -> Proxy:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            if _readable(self._listener):
                client, _ = self._listener.accept()
                self.connections += 1
                self._threads.append(threading.Thread(target=self._serve, args=(client, self.connections)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket, number: int) -> None:
        reset_at_reply = False
        with client, socket.create_connection(self._server) as server:
            while not self._closed.is_set():
                for source in _readable(client, server):
                    if self.silent or number <= self._dropped:
                        self._closed.wait(0.02)
                        continue
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client:
                        if self.lose_reply_to is not None and self.lose_reply_to in data:
                            self.lose_reply_to = None
                            reset_at_reply = True
                        server.sendall(data)
                    elif reset_at_reply:
                        self.lost += 1
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    else:
                        self._closed.wait(self.delay)
                        client.sendall(data)


def _readable(*sockets: socket.socket) -> list[socket.socket]:
    return select.select(sockets, [], [], 0.02)[0]

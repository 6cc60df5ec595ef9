"""Serve what penstock.py registers as a go-plugin process, over gRPC.

penstock.main() does so by itself when penstock starts the program as
{ process: [python3, ./judge.py] }. It needs grpcio (Debian: python3-grpcio)
and nothing else: the messages of sdk/proto/plugin.proto are written here by
hand. Unlike exec, several calls are in flight at once.
"""

import json
import os
import signal
import sys
import threading
import traceback
from concurrent import futures

import grpc

import penstock

COOKIE = ("PENSTOCK_PLUGIN", "8c9f5d1e-penstock-plugin")
_VERSION, _PACKAGE = 1, "penstock.plugin.v1."
_MAX_MESSAGE, _WORKERS, _WATCH_SECONDS = 64 << 20, 32, 30
_CAPABILITIES = [b"files"]


def _varint(n):
    out = b""
    while n >= 0x80:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def _encode(*fields):
    """A message of (number, value) pairs: bytes, or True."""
    out = b""
    for number, value in fields:
        if value is True:
            out += _varint(number << 3) + b"\x01"
        elif value:
            out += _varint(number << 3 | 2) + _varint(len(value)) + value
    return out


def _decode(data):
    """The last value of each length-delimited field of a message."""
    out, at = {}, 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at, n, shift = at + 1, n | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return n

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            size = varint()
            out[key >> 3], at = data[at:at + size], at + size
        elif key & 7 == 0:
            varint()
        else:
            raise ValueError("a field of an unknown kind")
    return out


def _error(e):
    """The message Error of an exception."""
    code, pointer, retry, message = "exception", "", False, "%s: %s" % (type(e).__name__, e)
    if isinstance(e, penstock.ConfigError):
        code, pointer, message = "config", e.pointer, str(e)
    elif isinstance(e, penstock.Retry):
        code, retry, message = "retry", True, str(e)
    elif isinstance(e, penstock._Failure):
        code, message = str(e.error["code"]), e.error["message"]
    else:
        traceback.print_exc()
    return _encode((1, code.encode()), (2, message.encode()), (3, retry), (4, pointer.encode()))


class _Plugin:
    def __init__(self):
        self.server = penstock._Server()
        self.watched = threading.Event()

    def describe(self, request, context):
        text = json.dumps(penstock._describe()).encode()
        return _encode((1, text), *((2, c) for c in _CAPABILITIES))

    def open(self, request, context):
        q = _decode(request)
        component = (q.get(2, b"") + b"/" + q.get(3, b"")).decode()
        try:
            params = {"instance": q.get(1, b"").decode(), "component": component, "config": json.loads(q.get(4) or b"{}")}
            self.server.call("open", params)
        except Exception as e:
            return _encode((1, _error(e)))
        return b""

    def validate(self, request, context):
        name = _encode((1, b"validate"))
        reply = self.open(request + name, context)  # the last handle counts
        self.close(name, context)
        return reply

    def close(self, request, context):
        self.server.call("close", {"instance": _decode(request).get(1, b"").decode()})
        return b""

    def call(self, request, context):
        q = _decode(request)
        try:
            if q.get(4):
                with open(q[4].decode(), "rb") as f:
                    q[3] = f.read()
            params = dict(json.loads(q.get(3, b"{}")), instance=q.get(1, b"").decode())
            out = self.server.call(q.get(2, b"").decode(), params)
            return _encode((1, json.dumps(out, ensure_ascii=False, allow_nan=False).encode()))
        except Exception as e:
            return _encode((2, _error(e)))

    def watch(self, request, context):
        """Held for life: when it ends the host is gone, and so are we."""
        self.watched.set()
        gone = threading.Event()
        if not context.add_callback(gone.set):
            gone.set()
        yield _encode(*((1, c) for c in _CAPABILITIES))
        gone.wait()
        _end()


def _end():
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def serve():
    """Serve until the host is gone."""
    plugin, unary = _Plugin(), grpc.unary_unary_rpc_method_handler
    server = grpc.server(futures.ThreadPoolExecutor(_WORKERS), options=[
        ("grpc.max_receive_message_length", _MAX_MESSAGE), ("grpc.max_send_message_length", _MAX_MESSAGE)])
    server.add_generic_rpc_handlers((
        grpc.method_handlers_generic_handler(_PACKAGE + "Plugin", {
            "Describe": unary(plugin.describe), "Validate": unary(plugin.validate), "Open": unary(plugin.open),
            "Close": unary(plugin.close), "Watch": grpc.unary_stream_rpc_method_handler(plugin.watch)}),
        grpc.method_handlers_generic_handler(_PACKAGE + "Judger", {"Call": unary(plugin.call)}),
        grpc.method_handlers_generic_handler(_PACKAGE + "Hook", {"Call": unary(plugin.call)}),
    ))
    path = os.path.join(os.environ.get("PLUGIN_UNIX_SOCKET_DIR", "/tmp"), "plugin")
    server.add_insecure_port("unix:" + path)
    server.start()
    # The handshake is the one thing on standard output; a print goes to the log.
    os.write(1, ("1|%d|unix|%s|grpc\n" % (_VERSION, path)).encode())
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    if not plugin.watched.wait(_WATCH_SECONDS):
        _end()
    server.wait_for_termination()

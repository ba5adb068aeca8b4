"""A store in a Python program whose workers are forked by multiprocessing: fork.py LIBRARY DIR."""

import ctypes
import multiprocessing
import sys

LAVA_OK, LAVA_DURABLE, LAVA_FORKED = 0, 1, 16


class Slice(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("len", ctypes.c_size_t)]


def text(s):
    return Slice(s.encode(), len(s.encode()))


lava = ctypes.CDLL(sys.argv[1])
lava.lava_value_bytes.restype = Slice
lava.lava_put.argtypes = [ctypes.c_void_p, ctypes.c_void_p, Slice, Slice, ctypes.c_uint32, ctypes.c_void_p]
lava.lava_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, Slice, ctypes.c_void_p, ctypes.c_void_p]


def put(key, value):
    return lava.lava_put(db, None, text(key), text(value), LAVA_DURABLE, None)


def get(key):
    value = ctypes.c_void_p()
    status = lava.lava_get(db, None, None, text(key), ctypes.byref(value), None)
    found = None
    if value:
        found = ctypes.string_at(*(lambda s: (s.data, s.len))(lava.lava_value_bytes(value)))
        lava.lava_value_free(value)
    return status, found


def opened():
    handle = ctypes.c_void_p()
    assert lava.lava_open(sys.argv[2].encode(), None, ctypes.byref(handle), None) == LAVA_OK
    return handle


def work(n):
    """In a worker, which has the handle of its parent."""
    return put(f"worker/{n}", "value"), get("key")[0], lava.lava_flush(db, None)


def leave():
    """In a worker that cleans up."""
    lava.lava_db_free(db)


if __name__ == "__main__":
    db = opened()
    assert put("key", "value") == LAVA_OK
    fork = multiprocessing.get_context("fork")
    for round in range(3):
        with fork.Pool(4) as pool:
            answers = pool.map_async(work, range(20))
            written = [put(f"{round}/{i}", "value") for i in range(50)]
            assert written == [LAVA_OK] * 50, written
            assert answers.get(timeout=60) == [(LAVA_FORKED,) * 3] * 20
        leaves = fork.Process(target=leave)
        leaves.start()
        leaves.join(60)
        assert leaves.exitcode == 0
    assert lava.lava_close(db, None) == LAVA_OK
    db = opened()
    assert all(get(f"{round}/{i}") == (LAVA_OK, b"value") for round in range(3) for i in range(50))
    assert all(get(f"worker/{n}") == (LAVA_OK, None) for n in range(20))
    assert lava.lava_close(db, None) == LAVA_OK
    print("all is as the header says")

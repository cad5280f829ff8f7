# SPDX-License-Identifier: Apache-2.0 OR MIT
"""libtimewire for tests in Python: no build step, no other package, Python 3.9 or newer.

The library is the file that the environment variable TIMEWIRE_LIBRARY names, else the one that a
wheel has put beside this module, else the one that the dynamic linker finds. Times are nanoseconds
of TAI; `timewire.h` has the meaning of everything.

    import timewire as tw

    with tw.Receiver(bind="127.0.0.1:0", timestamps=tw.TIMESTAMP_SOFTWARE) as receiver, \\
         tw.Transmitter(to=str(receiver.address)) as transmitter:
        transmitter.send(b"hello")
        for arrival in receiver.receive(wait_ns=1_000_000_000):
            print(arrival.bytes, arrival.user_ns - arrival.kernel_ns)

Not here: control loops. The interpreter takes tens of microseconds for a call.
"""
import ctypes as c
import ctypes.util
import json
import os

ABI_VERSION = 1

ERROR_USAGE, ERROR_SYSTEM, ERROR_UNSUPPORTED, ERROR_FULL, ERROR_INTERNAL = -1, -2, -3, -4, -5
UDP, FRAMES, RING, XDP = 1, 2, 3, 4
XDP_AUTO, XDP_GENERIC, XDP_NATIVE, XDP_ZERO_COPY = 0, 1, 2, 3
LAUNCH_NONE, LAUNCH_TAI, LAUNCH_MONOTONIC = 0, 1, 2
POINT_SCHED, POINT_SOFTWARE, POINT_HARDWARE, POINT_FREED = 1, 2, 4, 8
REPORT_TIMESTAMP, REPORT_NOT_TAKEN, REPORT_LAUNCH_INVALID = 1, 2, 3
REPORT_LAUNCH_MISSED, REPORT_OTHER = 4, 5
STREAM_PROBE, STREAM_SEND_LATE, STREAM_TAG, STREAM_UDP = 1, 2, 4, 8
FILTER_ETHERTYPE, FILTER_DESTINATION, FILTER_SOURCE = 1, 2, 4
FILTER_VID, FILTER_PCP, FILTER_UDP_PORT = 8, 16, 32
TIMESTAMP_SOFTWARE, TIMESTAMP_HARDWARE = 1, 2
WAIT_BLOCK, WAIT_POLL, WAIT_BUSY_POLL = 0, 1, 2
HAS_HARDWARE, HAS_DRIVER, HAS_KERNEL, HAS_FROM, HAS_TAG = 1, 2, 4, 8, 16
PROBE_LEN = 18
PROBE_LEN_SKIPPED = 22
NO_LAUNCH = 0
NO_END = 0
SPIN_NONE = -1
SPIN_USUAL_NS = 80_000


class Window(c.Structure):
    _fields_ = [("offset_ns", c.c_int64), ("length_ns", c.c_int64)]


class Address(c.Structure):
    """Prints as the library reads it."""

    _fields_ = [("family", c.c_uint16), ("port", c.c_uint16), ("scope", c.c_uint32),
                ("bytes", c.c_uint8 * 16)]

    def __str__(self):
        text = c.create_string_buffer(64)
        _check(_lib.tw_address_format(c.byref(self), text, len(text)))
        return text.value.decode()


class Probe(c.Structure):
    """The header by which the messages of a stream are known."""

    _fields_ = [("size", c.c_uint32), ("seq", c.c_uint32), ("time_ns", c.c_int64),
                ("stream", c.c_uint32), ("is_launch", c.c_uint32),
                ("skipped", c.c_uint32), ("has_skipped", c.c_uint32)]


class TransmitterConfig(c.Structure):
    _fields_ = [("size", c.c_uint32), ("transport", c.c_uint32), ("interface", c.c_char_p),
                ("from", c.c_char_p), ("to", c.c_char_p), ("queue", c.c_uint32),
                ("xdp_mode", c.c_uint32), ("flags", c.c_uint32), ("priority", c.c_uint32),
                ("traffic_class", c.c_uint32), ("launch", c.c_uint32), ("points", c.c_uint32),
                ("buffer_bytes", c.c_uint32), ("longest", c.c_uint32),
                ("busy_poll_us", c.c_uint32), ("busy_poll_budget", c.c_uint32),
                ("reserved", c.c_uint32)]


class Report(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("id", c.c_uint32),
                ("point", c.c_uint32), ("is_nic_clock", c.c_uint32), ("error", c.c_int32),
                ("time_ns", c.c_int64)]


class StreamConfig(c.Structure):
    _fields_ = [("size", c.c_uint32), ("stream", c.c_uint32), ("port", c.c_uint32),
                ("flags", c.c_uint32), ("start_ns", c.c_int64), ("cycle_ns", c.c_int64),
                ("offset_ns", c.c_int64), ("spacing_ns", c.c_int64),
                ("deadline_ns", c.c_int64), ("launch_lead_ns", c.c_int64),
                ("cycles", c.c_uint64), ("frames", c.c_uint32), ("payload", c.c_uint32),
                ("to", Address), ("from", Address), ("destination", c.c_uint8 * 6),
                ("source", c.c_uint8 * 6), ("ethertype", c.c_uint16), ("vid", c.c_uint16),
                ("pcp", c.c_uint8), ("traffic_class", c.c_uint8), ("reserved", c.c_uint8 * 6)]


class TalkerConfig(c.Structure):
    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32),
                ("ports", c.POINTER(TransmitterConfig)), ("streams", c.POINTER(StreamConfig)),
                ("port_count", c.c_uint32), ("stream_count", c.c_uint32),
                ("spin_ns", c.c_int64)]


class Fill(c.Structure):
    """A message that is due."""

    _fields_ = [("size", c.c_uint32), ("stream", c.c_uint32), ("seq", c.c_uint32),
                ("length", c.c_uint32), ("due_ns", c.c_int64), ("launch_ns", c.c_int64),
                ("bytes", c.POINTER(c.c_uint8))]


class StreamCounters(c.Structure):
    """What became of the messages of a stream."""

    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32), ("planned", c.c_uint64),
                ("sent", c.c_uint64), ("woke_late", c.c_uint64), ("overran", c.c_uint64),
                ("not_filled", c.c_uint64), ("not_taken", c.c_uint64),
                ("refused", c.c_uint64), ("past_deadline", c.c_uint64),
                ("launch_invalid", c.c_uint64), ("launch_missed", c.c_uint64),
                ("timestamps", c.c_uint64), ("timestamps_missing", c.c_uint64),
                ("latest_ns", c.c_int64)]


class Filter(c.Structure):
    _fields_ = [("parts", c.c_uint32), ("ethertype", c.c_uint16), ("vid", c.c_uint16),
                ("udp_port", c.c_uint16), ("pcp", c.c_uint8), ("reserved", c.c_uint8),
                ("destination", c.c_uint8 * 6), ("source", c.c_uint8 * 6)]


class ReceiverConfig(c.Structure):
    _fields_ = [("size", c.c_uint32), ("transport", c.c_uint32), ("interface", c.c_char_p),
                ("bind", c.c_char_p), ("group", c.c_char_p), ("queue", c.c_uint32),
                ("xdp_mode", c.c_uint32), ("flags", c.c_uint32), ("timestamps", c.c_uint32),
                ("wait", c.c_uint32), ("busy_poll_us", c.c_uint32),
                ("busy_poll_budget", c.c_uint32), ("buffer_bytes", c.c_uint32),
                ("longest", c.c_uint32), ("reserved", c.c_uint32), ("filter", Filter)]


class RawArrival(c.Structure):
    _fields_ = [("size", c.c_uint32), ("has", c.c_uint32), ("bytes", c.POINTER(c.c_uint8)),
                ("captured", c.c_uint32), ("length", c.c_uint32), ("hardware_ns", c.c_int64),
                ("driver_ns", c.c_int64), ("kernel_ns", c.c_int64), ("user_ns", c.c_int64),
                ("from", Address), ("tag", c.c_uint8 * 4), ("reserved", c.c_uint32)]


# Each by its name in C, for a test that compares them with the header.
STRUCTURES = {
    "tw_window": Window, "tw_address": Address, "tw_probe": Probe,
    "tw_transmitter_config": TransmitterConfig, "tw_report": Report,
    "tw_stream_config": StreamConfig, "tw_talker_config": TalkerConfig, "tw_fill": Fill,
    "tw_stream_counters": StreamCounters, "tw_filter": Filter,
    "tw_receiver_config": ReceiverConfig, "tw_arrival": RawArrival,
}


class Error(Exception):
    """`code` is one of ERROR_..., `errno` the system's number or 0."""

    def __init__(self, code, text, errno):
        super().__init__(text)
        self.code, self.errno = code, errno


def _beside():
    """The library of a wheel, if this is one. What it needs is loaded before it: the dynamic linker
    takes what is there by its name, and looks no further."""
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "timewire.libs")
    try:
        with open(os.path.join(directory, "load"), encoding="utf-8") as file:
            *needed, own = [os.path.join(directory, name) for name in file.read().split()]
    except FileNotFoundError:
        return None
    for path in needed:
        c.CDLL(path)
    return own


def _load():
    path = os.environ.get("TIMEWIRE_LIBRARY") or _beside() or ctypes.util.find_library("timewire")
    lib = c.CDLL(path or "libtimewire.so.%d" % ABI_VERSION)
    lib.tw_abi_version.restype = c.c_uint32
    if lib.tw_abi_version() != ABI_VERSION:
        raise ImportError("libtimewire has the binary interface %d, this module is for %d"
                          % (lib.tw_abi_version(), ABI_VERSION))
    handle, out = c.c_void_p, c.POINTER(c.c_void_p)
    lib.tw_version.restype = lib.tw_last_error.restype = c.c_char_p
    lib.tw_now.restype = c.c_int64
    for name, arguments in {
        "tw_sleep_until": [c.c_int64, c.c_int64],
        "tw_slots_open": [c.c_char_p, c.c_char_p, c.c_int64, out],
        "tw_slots_parse": [c.c_char_p, c.c_char_p, c.c_int64, out],
        "tw_slots_make": [c.c_int64, c.c_int64, c.POINTER(Window), c.c_size_t, c.c_int64, out],
        "tw_slots_next": [handle, c.c_int64, c.POINTER(c.c_int64)],
        "tw_slots_wait": [handle, c.POINTER(c.c_int64)],
        "tw_slots_close": [handle],
        "tw_address_parse": [c.c_char_p, c.POINTER(Address)],
        "tw_address_format": [c.POINTER(Address), c.c_char_p, c.c_size_t],
        "tw_probe_write": [c.c_char_p, c.c_size_t, c.POINTER(Probe)],
        "tw_probe_parse": [c.c_char_p, c.c_size_t, c.POINTER(Probe)],
        "tw_transmitter_open": [c.POINTER(TransmitterConfig), out],
        "tw_transmitter_send_copy": [handle, c.c_char_p, c.c_size_t, c.POINTER(Address),
                                     c.c_int64, c.POINTER(c.c_uint32)],
        "tw_transmitter_flush": [handle],
        "tw_transmitter_reports": [handle, _REPORT_FN, c.c_void_p],
        "tw_transmitter_longest": [handle],
        "tw_transmitter_hardware_address": [handle, c.c_char_p],
        "tw_transmitter_drop_causes": [handle, c.c_int, c.c_char_p, c.c_size_t],
        "tw_transmitter_mode": [handle, c.c_char_p, c.c_size_t],
        "tw_transmitter_fd": [handle],
        "tw_transmitter_close": [handle],
        "tw_talker_open": [c.POINTER(TalkerConfig), out],
        "tw_talker_run": [handle, c.c_int64, _FILL_FN, c.c_void_p],
        "tw_talker_stop": [handle],
        "tw_talker_counters": [handle, c.c_uint32, c.POINTER(StreamCounters)],
        "tw_talker_drop_causes": [handle, c.c_int, c.c_char_p, c.c_size_t],
        "tw_talker_mode": [handle, c.c_uint32, c.c_char_p, c.c_size_t],
        "tw_talker_close": [handle],
        "tw_receiver_open": [c.POINTER(ReceiverConfig), out],
        "tw_receiver_receive": [handle, c.c_int64, _ARRIVAL_FN, c.c_void_p],
        "tw_receiver_drops": [handle, c.POINTER(c.c_uint64)],
        "tw_receiver_other_queues": [handle, c.POINTER(c.c_uint64)],
        "tw_receiver_address": [handle, c.POINTER(Address)],
        "tw_receiver_mode": [handle, c.c_char_p, c.c_size_t],
        "tw_receiver_fd": [handle],
        "tw_receiver_close": [handle],
        "tw_marker_open": [c.c_uint32, out],
        "tw_marker_point": [handle, c.c_char_p],
        "tw_marker_counter": [handle, c.c_char_p],
        "tw_marker_histogram": [handle, c.c_char_p],
        "tw_marker_flow": [c.POINTER(Address), c.POINTER(Address), c.POINTER(c.c_uint32)],
        "tw_marker_mark": [handle, c.c_int, c.c_uint64, c.c_uint64],
        "tw_marker_count": [handle, c.c_int, c.c_uint64],
        "tw_marker_observe": [handle, c.c_int, c.c_uint64],
        "tw_marker_close": [handle],
    }.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, c.c_int
    for name in "mark", "count", "observe":
        getattr(lib, "tw_marker_" + name).restype = None
    return lib


_REPORT_FN = c.CFUNCTYPE(None, c.POINTER(Report), c.c_void_p)
_FILL_FN = c.CFUNCTYPE(c.c_int, c.POINTER(Fill), c.c_void_p)
_ARRIVAL_FN = c.CFUNCTYPE(None, c.POINTER(RawArrival), c.c_void_p)
_lib = _load()


def _check(result):
    if result < 0:
        raise Error(result, _lib.tw_last_error().decode(), _lib.tw_last_errno())
    return result


def _text(text):
    return None if text is None else os.fsencode(text)


def version():
    return _lib.tw_version().decode()


def now():
    return _lib.tw_now()


def sleep_until(until_ns, spin_ns=SPIN_USUAL_NS):
    _check(_lib.tw_sleep_until(until_ns, spin_ns))


def address(text):
    result = Address()
    _check(_lib.tw_address_parse(_text(text), c.byref(result)))
    return result


def probe_bytes(stream, seq, time_ns, is_launch=False, skipped=None):
    """The header of a message as bytes, to put before its content. `skipped`: how many messages
    of the stream were not sent, if that is to be said."""
    length = PROBE_LEN if skipped is None else PROBE_LEN_SKIPPED
    message = c.create_string_buffer(length)
    probe = Probe(c.sizeof(Probe), seq, time_ns, stream, int(is_launch), skipped or 0,
                  int(skipped is not None))
    _check(_lib.tw_probe_write(message, length, c.byref(probe)))
    return message.raw


def parse_probe(message):
    """The header of a message, None without one."""
    probe = Probe(size=c.sizeof(Probe))
    found = _check(_lib.tw_probe_parse(bytes(message), len(message), c.byref(probe)))
    return probe if found else None


def _drop_causes(call):
    length = _check(call(None, 0))
    text = c.create_string_buffer(length + 1)
    _check(call(text, len(text)))
    return json.loads(text.value)


class _Handle:
    """Closed at the end of its `with`; after that it is an error to use it."""

    _close = None

    def __init__(self):
        self._handle = c.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        handle, self._handle = self._handle, c.c_void_p()
        _check(getattr(_lib, self._close)(handle))


class Slots(_Handle):
    """Slots of a station: of a file, of a text, or `windows` [(offset_ns, length_ns), ...]."""

    _close = "tw_slots_close"

    def __init__(self, path=None, station=None, lead_ns=0, text=None, base_time_ns=0,
                 cycle_ns=0, windows=()):
        super().__init__()
        out = c.byref(self._handle)
        if path is not None:
            _check(_lib.tw_slots_open(_text(path), _text(station), lead_ns, out))
        elif text is not None:
            _check(_lib.tw_slots_parse(text.encode(), _text(station), lead_ns, out))
        else:
            all_windows = (Window * len(windows))(*(Window(*window) for window in windows))
            _check(_lib.tw_slots_make(base_time_ns, cycle_ns, all_windows, len(windows),
                                      lead_ns, out))

    def next(self, from_ns):
        slot = c.c_int64()
        _check(_lib.tw_slots_next(self._handle, from_ns, c.byref(slot)))
        return slot.value

    def wait(self):
        """Returns the start of the slot that comes."""
        slot = c.c_int64()
        _check(_lib.tw_slots_wait(self._handle, c.byref(slot)))
        return slot.value


def _fill(config, options):
    config.size = c.sizeof(config)
    for name, value in options.items():
        name = {"from_": "from"}.get(name, name)
        if not hasattr(config, name):
            raise TypeError("no option %r" % name)
        setattr(config, name, _text(value) if isinstance(value, str) else value)
    return config


class Transmitter(_Handle):
    """A way out; options are the fields of tw_transmitter_config (`from_` for `from`)."""

    _close = "tw_transmitter_close"

    def __init__(self, transport=UDP, **options):
        super().__init__()
        config = _fill(TransmitterConfig(), dict(options, transport=transport))
        _check(_lib.tw_transmitter_open(c.byref(config), c.byref(self._handle)))

    def send(self, message, to=None, launch_ns=NO_LAUNCH, flush=True):
        """Returns the number of the message."""
        number = c.c_uint32()
        if isinstance(to, str):
            to = address(to)
        _check(_lib.tw_transmitter_send_copy(
            self._handle, bytes(message), len(message), None if to is None else c.byref(to),
            launch_ns, c.byref(number)))
        if flush:
            self.flush()
        return number.value

    def flush(self):
        return _check(_lib.tw_transmitter_flush(self._handle))

    def reports(self):
        """What became known since the last call, a list of Report."""
        got = []

        def keep(report, _context):
            got.append(Report.from_buffer_copy(report.contents))

        _check(_lib.tw_transmitter_reports(self._handle, _REPORT_FN(keep), None))
        return got

    @property
    def drop_causes(self):
        """Why messages did not leave: the list `drop_causes` of the command's --json."""
        return _drop_causes(lambda text, room: _lib.tw_transmitter_drop_causes(
            self._handle, 1, text, room))

    @property
    def longest(self):
        return _check(_lib.tw_transmitter_longest(self._handle))

    @property
    def hardware_address(self):
        room = c.create_string_buffer(6)
        _check(_lib.tw_transmitter_hardware_address(self._handle, room))
        return room.raw

    @property
    def mode(self):
        text = c.create_string_buffer(1024)
        _check(_lib.tw_transmitter_mode(self._handle, text, len(text)))
        return text.value.decode()

    def fileno(self):
        return _check(_lib.tw_transmitter_fd(self._handle))


class Talker(_Handle):
    """Many streams from one thread. `ports` and `streams` are lists of dictionaries with the fields
    of tw_transmitter_config and tw_stream_config; a stream's addresses and hardware addresses may
    be text and bytes."""

    _close = "tw_talker_close"

    def __init__(self, ports, streams, spin_ns=0):
        super().__init__()
        all_ports = (TransmitterConfig * len(ports))()
        for config, options in zip(all_ports, ports):
            _fill(config, dict({"transport": UDP}, **options))
        all_streams = (StreamConfig * len(streams))()
        for config, options in zip(all_streams, streams):
            _fill(config, {name: _stream_value(name, value) for name, value in options.items()})
        config = TalkerConfig(c.sizeof(TalkerConfig), 0, all_ports, all_streams, len(ports),
                              len(streams), spin_ns)
        _check(_lib.tw_talker_open(c.byref(config), c.byref(self._handle)))

    def run(self, fill, until_ns=NO_END):
        """Calls `fill(message)` with a Fill for each message that is due, and sends the bytes that
        it returns, filled up with zeros; None leaves the message out. Returns whether it was
        stopped, by `stop()` or by an exception, which is raised."""
        failed = []

        def ask(message, _context):
            try:
                content = None if failed else fill(message.contents)
                if content is None:
                    return 1
                if len(content) > message.contents.length:
                    raise ValueError("%d bytes for a message of %d"
                                     % (len(content), message.contents.length))
                c.memmove(message.contents.bytes, bytes(content), len(content))
                return 0
            except BaseException as error:  # must not pass through the library
                failed.append(error)
                self.stop()
                return 1

        stopped = _check(_lib.tw_talker_run(self._handle, until_ns, _FILL_FN(ask), None))
        if failed:
            raise failed[0]
        return bool(stopped)

    def stop(self):
        """May be called by any thread."""
        if _lib.tw_talker_stop(self._handle) < 0:
            raise Error(ERROR_USAGE, "this talker is closed", 0)

    def counters(self, stream):
        """May be called by any thread while it runs."""
        counters = StreamCounters(size=c.sizeof(StreamCounters))
        _check(_lib.tw_talker_counters(self._handle, stream, c.byref(counters)))
        return counters

    @property
    def drop_causes(self):
        """Why messages of all streams did not leave; not while it runs."""
        return _drop_causes(lambda text, room: _lib.tw_talker_drop_causes(
            self._handle, 1, text, room))

    def mode(self, port=0):
        text = c.create_string_buffer(1024)
        _check(_lib.tw_talker_mode(self._handle, port, text, len(text)))
        return text.value.decode()


def _stream_value(name, value):
    if name in ("to", "from_") and isinstance(value, str):
        return address(value)
    if name in ("destination", "source"):
        return (c.c_uint8 * 6)(*value)
    return value


class Arrival:
    """A message that has come, copied; timestamps that are not known are None."""

    def __init__(self, raw):
        def known(bit, value):
            return value if raw.has & bit else None

        self.bytes = c.string_at(raw.bytes, raw.captured)
        self.length = raw.length
        self.hardware_ns = known(HAS_HARDWARE, raw.hardware_ns)
        self.driver_ns = known(HAS_DRIVER, raw.driver_ns)
        self.kernel_ns = known(HAS_KERNEL, raw.kernel_ns)
        self.user_ns = raw.user_ns
        self.sender = known(HAS_FROM, Address.from_buffer_copy(getattr(raw, "from")))
        self.tag = known(HAS_TAG, bytes(raw.tag))


class Receiver(_Handle):
    """A way in; options are the fields of tw_receiver_config."""

    _close = "tw_receiver_close"

    def __init__(self, transport=UDP, **options):
        super().__init__()
        config = _fill(ReceiverConfig(), dict(options, transport=transport))
        _check(_lib.tw_receiver_open(c.byref(config), c.byref(self._handle)))

    def receive(self, wait_ns=-1):
        """What is there, a list of Arrival; waits for the first, for ever if negative."""
        got, failed = [], []

        def keep(arrival, _context):
            try:
                got.append(Arrival(arrival.contents))
            except BaseException as error:  # must not pass through the library
                failed.append(error)

        _check(_lib.tw_receiver_receive(self._handle, wait_ns, _ARRIVAL_FN(keep), None))
        if failed:
            raise failed[0]
        return got

    @property
    def drops(self):
        number = c.c_uint64()
        _check(_lib.tw_receiver_drops(self._handle, c.byref(number)))
        return number.value

    @property
    def other_queues(self):
        """Frames that fit and came on receive queues that are not heard."""
        number = c.c_uint64()
        _check(_lib.tw_receiver_other_queues(self._handle, c.byref(number)))
        return number.value

    @property
    def address(self):
        own = Address()
        _check(_lib.tw_receiver_address(self._handle, c.byref(own)))
        return own

    @property
    def mode(self):
        text = c.create_string_buffer(1024)
        _check(_lib.tw_receiver_mode(self._handle, text, len(text)))
        return text.value.decode()

    def fileno(self):
        return _check(_lib.tw_receiver_fd(self._handle))


def tag(flow, number):
    """The tag of a packet: of a message with a probe its stream and number."""
    return flow << 32 | number


def udp_flow(source, destination):
    """The upper half of the tags of what goes from one UDP socket to another."""
    flow = c.c_uint32()
    _check(_lib.tw_marker_flow(c.byref(source), c.byref(destination), c.byref(flow)))
    return flow.value


class Marker(_Handle):
    """Marks of the thread that makes it, for `timewire trace`; no other thread may use it.

    A mark takes a microsecond from here: what the interpreter takes for any call.
    """

    _close = "tw_marker_close"

    def __init__(self, records=0):
        super().__init__()
        _check(_lib.tw_marker_open(records, c.byref(self._handle)))

    def point(self, name):
        return _check(_lib.tw_marker_point(self._handle, name.encode()))

    def counter(self, name):
        return _check(_lib.tw_marker_counter(self._handle, name.encode()))

    def histogram(self, name):
        return _check(_lib.tw_marker_histogram(self._handle, name.encode()))

    def mark(self, point, tag=0, value=0):
        _lib.tw_marker_mark(self._handle, point, tag, value)

    def count(self, counter, more=1):
        _lib.tw_marker_count(self._handle, counter, more)

    def observe(self, histogram, value):
        _lib.tw_marker_observe(self._handle, histogram, value)

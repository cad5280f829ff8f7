/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets in sockets, and what the NIC says of those that it has sent: each body once, called by
 * the programs of all levels. Tracepoints and entries of functions (fentry) know the types of what
 * they are given, so it is read as it is; a kprobe has registers, and reads through a helper.
 *
 * Included by trace.bpf.c, which has what it calls. Not here: which level is used (mod.rs).
 */
#ifndef TIMEWIRE_SOCKETS_BPF_H
#define TIMEWIRE_SOCKETS_BPF_H

#define TW_TYPED 1
#define TW_UNTYPED 0
/* Linux SCM_TSTAMP_SND: it has left. */
#define TW_TIMESTAMP_SENT 0

/* A field of a structure of the kernel. */
#define TW_READ(typed, from, field)                                   \
	({                                                            \
		typeof((from)->field) value_ = 0;                     \
		if (typed)                                            \
			value_ = (from)->field;                       \
		else                                                  \
			BPF_CORE_READ_INTO(&value_, from, field);     \
		value_;                                               \
	})

/* A system call that is under way in a thread, where its end does not tell what it was given. */
struct tw_call {
	__u64 sock;
	__u32 flags;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct tw_call);
} calls SEC(".maps");

/* Whether what was put into the socket's queue last is all that there is in the socket. */
static __always_inline int tw_is_alone(struct sock *sk, int typed)
{
	struct udp_sock *udp = (void *)sk;
	__u32 taken = 1;

	if (TW_READ(typed, sk, sk_receive_queue.qlen) != 1)
		return 0;
	/* The reader of UDP takes all at once, and has them in a queue of its own. */
	if (TW_READ(typed, sk, sk_protocol) != IPPROTO_UDP ||
	    TW_READ(typed, sk, __sk_common.skc_family) == TW_FAMILY_PACKET)
		return 1;
	return !bpf_core_read(&taken, sizeof(taken), &udp->reader_queue.qlen) && !taken;
}

/* Which packet a socket was given: the one that this CPU has in its hands, or the last in the
 * socket's queue; 0 when that is not known. */
static __always_inline __u64 tw_given(struct tw_cpu *cpu, struct sock *sk, __u64 sock,
				      struct tw_entry *entry, int is_packet, int typed)
{
	struct sk_buff *last = TW_READ(typed, sk, sk_receive_queue.prev);
	__u64 tail = 0;

	if (last && (__u64)last != (__u64)&sk->sk_receive_queue)
		tail = tw_plain(cpu, TW_SOCKET_QUEUE, TW_READ(typed, last, head));
	entry->tag = cpu->current_tag;
	entry->info = entry->tag ? cpu->current_info : cpu->current_info & TW_PLACE_MASK;
	if (cpu->current && tail == cpu->current) {
		if (tw_is_alone(sk, typed))
			entry->info |= (__u64)TW_ALONE << TW_FLAGS_SHIFT;
		return cpu->current;
	}
	/* One of several that were taken out of a queue together, and a capture of them. */
	if (is_packet && tail && tw_find(tail, entry))
		return tail;
	if (cpu->current && cpu->current_socket != sock &&
	    TW_READ(typed, sk, sk_type) != TW_STREAM)
		return cpu->current;
	entry->tag = 0;
	return 0;
}

static __always_inline int tw_on_socket_queue(struct sock *sk, int typed)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_socket *socket = NULL;
	struct tw_entry entry = {};
	struct tw_socket new = {};
	__u64 sock, head, now;
	__u16 family;

	if (!cpu)
		return 0;
	cpu->seen[TW_SOCKET_QUEUE]++;
	if (!cpu->current_tag && !has_sockets)
		return 0;
	family = TW_READ(typed, sk, __sk_common.skc_family);
	if (family != TW_FAMILY_INET && family != TW_FAMILY_INET6 && family != TW_FAMILY_PACKET)
		return 0;
	sock = tw_plain(cpu, TW_SOCKET_QUEUE, sk);
	head = tw_given(cpu, sk, sock, &entry, family == TW_FAMILY_PACKET, typed);
	cpu->current_socket = sock;
	if (has_sockets)
		socket = bpf_map_lookup_elem(&sockets, &sock);
	if (!entry.tag) {
		if (!socket)
			return 0;
		now = bpf_ktime_get_ns();
		entry.info &= TW_PLACE_MASK | (__u64)TW_ALONE << TW_FLAGS_SHIFT;
		entry.info |= (__u64)TW_OTHER << TW_FLAGS_SHIFT;
		tw_write(cpu, TW_SOCKET_QUEUE, now, tw_disguise(head), 0, tw_disguise(sock),
			 entry.info, head ? cpu->current_length : 0, bpf_get_current_pid_tgid());
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (!socket) {
		new.place = entry.info & TW_PLACE_MASK;
		bpf_map_update_elem(&sockets, &sock, &new, BPF_ANY);
		has_sockets = 1;
	} else {
		socket->place = entry.info & TW_PLACE_MASK;
	}
	entry.info &= ~((__u64)TW_FIRST << TW_FLAGS_SHIFT);
	cpu->matched[TW_SOCKET_QUEUE]++;
	if (settings.mode == TW_HISTOGRAMS) {
		if (tw_find(head, &entry))
			tw_time(&entry, TW_SOCKET_QUEUE, now);
		return 0;
	}
	tw_write(cpu, TW_SOCKET_QUEUE, now, tw_disguise(head), entry.tag, tw_disguise(sock),
		 entry.info, cpu->current_length, bpf_get_current_pid_tgid());
	return 0;
}

static __always_inline int tw_on_socket_send(const void *sk, int result)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 sock, tag = 0;
	struct tw_socket *socket;

	if (!cpu)
		return 0;
	cpu->seen[TW_SOCKET_SEND]++;
	if (!has_sockets || settings.mode != TW_EVENTS)
		return 0;
	sock = tw_plain(cpu, TW_SOCKET_SEND, sk);
	socket = bpf_map_lookup_elem(&sockets, &sock);
	if (!socket || !socket->sender)
		return 0;
	if (socket->sender == thread)
		tag = socket->sent;
	socket->sent = 0;
	cpu->matched[TW_SOCKET_SEND]++;
	tw_write(cpu, TW_SOCKET_SEND, bpf_ktime_get_ns(), tw_disguise(sock), tag, (__s64)result,
		 socket->place, result > 0 ? result : 0, thread);
	return 0;
}

static __always_inline int tw_on_socket_receive(const void *sk, int result, int flags)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u32 thread = bpf_get_current_pid_tgid();
	struct tw_thread reader = {};
	struct tw_socket *socket;
	__u64 sock, info;

	if (!cpu)
		return 0;
	cpu->seen[TW_SOCKET_RECEIVE]++;
	if (!has_sockets || settings.mode != TW_EVENTS)
		return 0;
	sock = tw_plain(cpu, TW_SOCKET_RECEIVE, sk);
	socket = bpf_map_lookup_elem(&sockets, &sock);
	/* Asking in vain changes nothing, and can happen a million times a second. What comes
	 * back to a sender is no message. */
	if (!socket || result == -TW_AGAIN || flags & TW_ERROR_QUEUE)
		return 0;
	if (socket->reader != thread) {
		socket->reader = thread;
		reader.socket = tw_disguise(sock);
		reader.place = socket->place;
		bpf_map_update_elem(&threads, &thread, &reader, BPF_ANY);
		has_threads = 1;
		tw_learn_thread(cpu);
	}
	info = socket->place | (__u64)(flags & TW_PEEK ? TW_PEEKED : 0) << TW_FLAGS_SHIFT;
	cpu->matched[TW_SOCKET_RECEIVE]++;
	tw_write(cpu, TW_SOCKET_RECEIVE, bpf_ktime_get_ns(), tw_disguise(sock), 0, (__s64)result,
		 info, result > 0 ? result : 0, thread);
	return 0;
}

/* The timestamp of a frame that has left goes to its sender. */
static __always_inline int tw_on_timestamp(struct sk_buff *skb, __u64 nic, int kind, int typed)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_entry entry = {};
	__s64 timestamp = 0;
	__u64 head;

	if (!cpu || kind != TW_TIMESTAMP_SENT)
		return 0;
	cpu->seen[TW_TRANSMIT_TIMESTAMP]++;
	head = tw_plain(cpu, TW_TRANSMIT_TIMESTAMP, TW_READ(typed, skb, head));
	if (!tw_find(head, &entry))
		return 0;
	/* A ktime_t, first in the structure of timestamps. */
	if (nic)
		bpf_probe_read_kernel(&timestamp, sizeof(timestamp), (void *)nic);
	entry.info &= ~((__u64)TW_FIRST << TW_FLAGS_SHIFT);
	tw_tell(cpu, TW_TRANSMIT_TIMESTAMP, bpf_ktime_get_ns(), head, &entry, timestamp,
		TW_READ(typed, skb, len));
	return 0;
}

/* Tracepoints (Linux 6.3). */

SEC("tp_btf/sk_data_ready")
int BPF_PROG(tw_socket_queue, struct sock *sk)
{
	return tw_on_socket_queue(sk, TW_TYPED);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(tw_socket_send, struct sock *sk, int result, int flags)
{
	return tw_on_socket_send(sk, result);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(tw_socket_receive, struct sock *sk, int result, int flags)
{
	return tw_on_socket_receive(sk, result, flags);
}

/* Entries and ends of functions. Of the calls of sockets those of each family: they are called
 * through pointers, so none is part of its caller. */

SEC("fentry/sock_def_readable")
int BPF_PROG(tw_queue_entry, struct sock *sk)
{
	return tw_on_socket_queue(sk, TW_TYPED);
}

#define TW_FAMILY(family)                                                                  \
	SEC("fexit/" #family "_sendmsg")                                                   \
	int BPF_PROG(tw_send_##family, struct socket *socket, void *message,               \
		     unsigned long length, int result)                                     \
	{                                                                                  \
		return tw_on_socket_send(socket->sk, result);                              \
	}                                                                                  \
                                                                                           \
	SEC("fexit/" #family "_recvmsg")                                                   \
	int BPF_PROG(tw_receive_##family, struct socket *socket, void *message,            \
		     unsigned long length, int flags, int result)                          \
	{                                                                                  \
		return tw_on_socket_receive(socket->sk, result, flags);                    \
	}

TW_FAMILY(inet)
TW_FAMILY(inet6)
TW_FAMILY(packet)

SEC("fentry/__skb_tstamp_tx")
int BPF_PROG(tw_timestamp_entry, struct sk_buff *skb, const void *acknowledged, void *nic,
	     struct sock *sk, int kind)
{
	return tw_on_timestamp(skb, (__u64)nic, kind, TW_TYPED);
}

/* The same by breakpoints, where functions cannot be entered. */

SEC("kprobe/sock_def_readable")
int BPF_KPROBE(tw_queue_probe, struct sock *sk)
{
	return tw_on_socket_queue(sk, TW_UNTYPED);
}

static __always_inline int tw_begin_call(struct socket *socket, int flags)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct tw_call call = {};

	call.sock = (__u64)BPF_CORE_READ(socket, sk);
	call.flags = flags;
	bpf_map_update_elem(&calls, &thread, &call, BPF_ANY);
	return 0;
}

/* The socket of the call that ends, and its flags; 0 when its beginning was not seen. */
static __always_inline __u64 tw_end_call(__u32 *flags)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct tw_call *call = bpf_map_lookup_elem(&calls, &thread);
	__u64 sock;

	if (!call)
		return 0;
	sock = call->sock;
	*flags = call->flags;
	call->sock = 0;
	return sock;
}

SEC("kprobe/inet_sendmsg")
int BPF_KPROBE(tw_send_probe, struct socket *socket)
{
	return tw_begin_call(socket, 0);
}

SEC("kretprobe/inet_sendmsg")
int BPF_KRETPROBE(tw_send_return, int result)
{
	__u32 flags = 0;
	__u64 sock = tw_end_call(&flags);

	return sock ? tw_on_socket_send((void *)sock, result) : 0;
}

SEC("kprobe/inet_recvmsg")
int BPF_KPROBE(tw_receive_probe, struct socket *socket, void *message, unsigned long length,
	       int flags)
{
	return tw_begin_call(socket, flags);
}

SEC("kretprobe/inet_recvmsg")
int BPF_KRETPROBE(tw_receive_return, int result)
{
	__u32 flags = 0;
	__u64 sock = tw_end_call(&flags);

	return sock ? tw_on_socket_receive((void *)sock, result, flags) : 0;
}

SEC("kprobe/__skb_tstamp_tx")
int BPF_KPROBE(tw_timestamp_probe, struct sk_buff *skb, const void *acknowledged, void *nic,
	       struct sock *sk, int kind)
{
	return tw_on_timestamp(skb, (__u64)nic, kind, TW_UNTYPED);
}

#endif

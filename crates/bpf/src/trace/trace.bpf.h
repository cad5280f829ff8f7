/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the tracing programs share: the parts of the kernel's structures that they read (CO-RE finds
 * where they are), the settings, the event, what each CPU keeps, and the table of packets that are
 * followed.
 *
 * Not here: which packet it is (identity.bpf.h), the programs (trace.bpf.c).
 */
#ifndef TIMEWIRE_TRACE_BPF_H
#define TIMEWIRE_TRACE_BPF_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Linux, as far as it is read. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	char name[16];
	int ifindex;
	unsigned short type;
	possible_net_t nd_net;
};

struct sock;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	unsigned int data_len;
	__u16 queue_mapping;
	__u8 cloned : 1;
	__be16 vlan_proto;
	__u16 vlan_tci;
	__be16 protocol;
	__u16 network_header;
	__u16 mac_header;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};

/* Until 6.2 a bit said whether there is a tag beside the frame. */
struct sk_buff___old {
	__u8 vlan_present : 1;
};

struct skb_shared_info {
	unsigned short gso_size;
};

struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
};

struct sock_common {
	unsigned short skc_family;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_type;
	__u16 sk_protocol;
};

struct socket {
	struct sock *sk;
};

struct udp_sock {
	struct sk_buff_head reader_queue;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct Qdisc {
	unsigned int flags;
	__u32 handle;
	struct qdisc_skb_head q;
};

struct task_struct {
	int pid;
	char comm[16];
};

struct xdp_rxq_info {
	struct net_device *dev;
};

struct xdp_buff {
	void *data;
	void *data_end;
	struct xdp_rxq_info *rxq;
};

#pragma clang attribute pop

#define TW_EVENT_BYTES 48
#define TW_HOOKS 24
#define TW_KEY_WORDS 16
#define TW_MAX_TESTS 16
#define TW_MAX_CONJUNCTIONS 8
#define TW_NO_STATION 255
#define TW_STATIONS 1024

/* The mirror is timewire_capture::event::Hook. */
enum {
	TW_SOCKET_SEND = 2,
	TW_DEVICE_QUEUE,
	TW_QDISC_ENQUEUE,
	TW_QDISC_DEQUEUE,
	TW_DRIVER_START,
	TW_DRIVER_DONE,
	TW_RECEIVE_QUEUE,
	TW_NAPI_RECEIVE,
	TW_STACK_RECEIVE,
	TW_SOCKET_QUEUE,
	TW_WAKING,
	TW_SWITCH_IN,
	TW_SOCKET_RECEIVE,
	TW_DROP,
	TW_IRQ_ENTRY,
	TW_IRQ_EXIT,
	TW_SOFTIRQ_ENTRY,
	TW_SOFTIRQ_EXIT,
	TW_NAPI_POLL,
	TW_XDP,
	TW_SEND_ENTER,
	TW_TRANSMIT_TIMESTAMP,
};

/* timewire_capture::event::Flags */
#define TW_TAGGED 1
#define TW_FIRST 2
#define TW_OTHER 4
#define TW_CLONED 8
#define TW_SEGMENTED 16
#define TW_PEEKED 32
#define TW_ALONE 64

/* Mode. */
#define TW_EVENTS 0
#define TW_COUNTERS 1
#define TW_HISTOGRAMS 2

struct tw_event {
	__u64 at; /* written last: until then the slot is empty */
	__u64 object;
	__u64 tag;
	__u64 aux;
	__u32 interface;
	__u32 thread;
	__u16 cpu;
	__u16 flags;
	__u16 length;
	__u8 hook;
	__u8 station;
};
_Static_assert(sizeof(struct tw_event) == TW_EVENT_BYTES, "the mirror is timewire_capture::event");

/* The filter: timewire_capture::filter::Match. */
struct tw_test {
	__u64 mask;
	__u64 least;
	__u64 span;
	__u64 next_mask;
	__u64 next_value;
	__u16 kinds;
	__u8 word;
	__u8 other;
	__u32 unused;
};
_Static_assert(sizeof(struct tw_test) == 48, "the mirror is timewire_capture::filter::Test");

struct tw_match {
	__u32 tests_count;
	__u32 conjunctions_count;
	struct {
		__u32 all;
		__u32 none;
	} conjunctions[TW_MAX_CONJUNCTIONS];
	struct tw_test tests[TW_MAX_TESTS];
};
_Static_assert(sizeof(struct tw_match) == 840, "the mirror is timewire_capture::filter::Match");

/* The mirror is `encode` in settings.rs. */
struct tw_settings {
	struct tw_match match;
	__u64 disguise[3]; /* random; the second and third are odd */
	__u32 mode;
	__u32 keep_one_of;
	__u32 slots; /* of one CPU's ring; a power of two */
	__u32 sets; /* of the table; a power of two */
	__u32 stations; /* how many there are */
	__u16 tag_offset; /* into the payload */
	__u8 tag_width; /* 0: no tag of the user's; 1, 2, 4 or 8 */
	__u8 tag_big; /* whether it is big endian */
	__u8 has_names; /* the filter asks for the thread's name */
	__u8 has_process;
	__u8 has_interface;
	__u8 is_ordered; /* the machine keeps the order of stores */
	__u32 sends[4]; /* numbers of system calls that send; ~0 for none */
};

const volatile struct tw_settings settings;

/* A packet that is given to a driver, until the driver is done. */
struct tw_sending {
	__u64 skb;
	__u64 object;
	__u64 tag;
	__u64 info;
};

#define TW_SENDING 4
#define TW_UNMATCHED 64
/* Slots that stay free, for those who were interrupted between the look and the step. */
#define TW_SPARE 64

/* What a CPU keeps; user space maps it. The mirror is `Cpu` in shared.rs. */
struct tw_cpu {
	__u64 tail; /* user space has taken all before; its alone */
	__u64 pad[7];

	__u64 head; /* slots given out */
	__u64 scattered; /* packets whose content could not be read */
	__u64 evicted; /* packets forgotten for want of room */
	__u64 pad2[5];

	__u64 seen[TW_HOOKS];
	__u64 matched[TW_HOOKS];
	__u64 written[TW_HOOKS];
	__u64 lost[TW_HOOKS];

	/* The packet that this CPU has in its hands. */
	__u64 current;
	__u64 current_tag;
	__u64 current_info;
	__u64 current_socket; /* has been given it */
	__u32 current_length;
	__u32 last_flow;
	__u32 last_thread;
	__u32 next_sending;
	__u64 handed; /* the packet that a driver has in its hands, when it is not asked for */
	__u64 pad3;

	struct tw_sending sending[TW_SENDING];
	__u64 unmatched[TW_UNMATCHED];

	__u64 plain[TW_HOOKS]; /* see tw_plain */
};
_Static_assert(sizeof(struct tw_cpu) == 64 * 28, "the mirror is in shared.rs");

/* Four packets whose heads fall together. An entry holds when its check does: no lock. */
struct tw_set {
	__u64 head[4];
	__u64 check[4];
	__u64 tag[4];
	__u64 info[4];
};

/* Bits of info: interface 0, station 32, stage 40, flags 48, age 56. */
#define TW_STAGE_SHIFT 40
#define TW_STAGE_MASK (0xffULL << TW_STAGE_SHIFT)
#define TW_FLAGS_SHIFT 48
#define TW_AGE_SHIFT 56
#define TW_PLACE_MASK ((1ULL << TW_STAGE_SHIFT) - 1)
#define TW_INFO_FLAGS(info) ((__u8)((info) >> TW_FLAGS_SHIFT))
#define TW_INFO_STAGE(info) ((__u8)((info) >> TW_STAGE_SHIFT))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_cpu);
} cpus SEC(".maps");

/* The rings of all CPUs, one after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_event);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_set);
} followed SEC(".maps");

/* When, and at which hook, packets were seen last: nanoseconds times 32, and the hook. */
struct tw_times {
	__u64 last[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_times);
} times SEC(".maps");

/* From one hook (times TW_HOOKS) to another: how often it took 2^n to 2^(n+1) ns. */
struct tw_histogram {
	__u64 bins[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TW_HOOKS * TW_HOOKS);
	__type(key, __u32);
	__type(value, struct tw_histogram);
} histograms SEC(".maps");

struct tw_station {
	__u32 namespace;
	__u32 station;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TW_STATIONS);
	__type(key, __u32);
	__type(value, struct tw_station);
} stations SEC(".maps");

/* A socket that got or sent a packet that was asked for. */
struct tw_socket {
	__u64 sent; /* tag of the last such packet that it sent, 0 when that is told */
	__u32 sender; /* thread that did */
	__u32 reader; /* thread that reads it */
	__u64 place; /* interface and station of the last packet */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct tw_socket);
} sockets SEC(".maps");

/* A thread that reads or sends such packets. */
struct tw_thread {
	__u64 socket; /* that it reads, disguised; 0 when it only sends */
	__u64 place;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct tw_thread);
} threads SEC(".maps");

struct tw_name {
	char name[16];
};

/* Names of threads. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct tw_name);
} names SEC(".maps");

/* By the upper half of a tag: the first eight words of the keys of a packet of it. */
struct tw_flow {
	__u64 words[8];
	__u32 kind;
	__u32 stream; /* plus 1; 0 when there is none */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct tw_flow);
} flows SEC(".maps");

/* Whether there are any of these yet: until then nobody looks for them. */
__u32 has_sockets;
__u32 has_threads;

/* An address that tells nothing of where it is; another address becomes another. */
static __always_inline __u64 tw_disguise(__u64 address)
{
	if (!address)
		return 0;
	address ^= settings.disguise[0];
	address *= settings.disguise[1];
	address ^= address >> 32;
	address *= settings.disguise[2];
	return address;
}

static __always_inline struct tw_cpu *tw_this_cpu(void)
{
	__u32 number = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &number);
}

/*
 * An address as a number. To the verifier it is a pointer, with which little can be done, or not,
 * as the kernel's version has it; what is read back from memory is a number. A program does not
 * interrupt itself, so each has its own place for that.
 */
static __always_inline __u64 tw_plain(struct tw_cpu *cpu, __u32 hook, const volatile void *address)
{
	*(volatile __u64 *)&cpu->plain[hook] = (__u64)address;
	return *(volatile __u64 *)&cpu->plain[hook];
}

static __always_inline __u32 tw_set_of(__u64 head)
{
	return (head >> 6) * 0x9e3779b97f4a7c15ULL >> 40 & (settings.sets - 1);
}

struct tw_entry {
	__u64 tag;
	__u64 info;
	struct tw_set *set;
	__u32 index; /* of the set */
	__u32 way;
};

/* Whether the packet with that head is followed. */
static __always_inline int tw_find(__u64 head, struct tw_entry *entry)
{
	__u32 index = tw_set_of(head);
	struct tw_set *set = bpf_map_lookup_elem(&followed, &index);
	int way;

	if (!set)
		return 0;
#pragma unroll
	for (way = 0; way < 4; way++) {
		if (*(volatile __u64 *)&set->head[way] != head)
			continue;
		entry->tag = *(volatile __u64 *)&set->tag[way];
		entry->info = *(volatile __u64 *)&set->info[way];
		if (set->check[way] != (head ^ entry->tag ^ entry->info))
			continue;
		entry->set = set;
		entry->index = index;
		entry->way = way;
		return 1;
	}
	return 0;
}

static __always_inline void tw_put(struct tw_set *set, __u32 way, __u64 head, __u64 tag, __u64 info)
{
	/* The compiler may know, but the verifier does not. */
	barrier_var(way);
	way &= 3;
	set->head[way] = head;
	set->tag[way] = tag;
	set->info[way] = info;
	set->check[way] = head ^ tag ^ info;
}

/* Follows the packet from now on; the one of four that was put there first makes room. */
static __always_inline void tw_follow(struct tw_cpu *cpu, __u64 head, struct tw_entry *entry,
				      __u64 now)
{
	__u32 index = tw_set_of(head), oldest = 0, way = 4;
	struct tw_set *set = bpf_map_lookup_elem(&followed, &index);
	__u8 age = now >> 20, most = 0, this;
	int i;

	if (!set)
		return;
#pragma unroll
	for (i = 0; i < 4; i++) {
		if (set->head[i] == head || (!set->head[i] && way == 4))
			way = i;
		this = age - (__u8)(set->info[i] >> TW_AGE_SHIFT);
		if (this >= most) {
			most = this;
			oldest = i;
		}
	}
	if (way == 4) {
		way = oldest;
		cpu->evicted++;
	}
	entry->info = (entry->info & ~(0xffULL << TW_AGE_SHIFT)) | (__u64)age << TW_AGE_SHIFT;
	entry->set = set;
	entry->index = index;
	entry->way = way & 3;
	tw_put(set, way, head, entry->tag, entry->info);
}

static __always_inline void tw_forget(__u64 head, struct tw_entry *entry)
{
	tw_put(entry->set, entry->way, 0, 0, 0);
}

/* The interface and the station, as in info. */
static __always_inline __u64 tw_place(struct net_device *device)
{
	__u32 namespace, slot, index = device->ifindex;
	struct tw_station *station;
	int i;

	if (!settings.stations)
		return (__u64)TW_NO_STATION << 32 | index;
	namespace = device->nd_net.net->ns.inum;
#pragma unroll
	for (i = 0; i < 4; i++) {
		slot = (namespace + i) & (TW_STATIONS - 1);
		station = bpf_map_lookup_elem(&stations, &slot);
		if (station && station->namespace == namespace)
			return (__u64)(station->station & 0xff) << 32 | index;
	}
	return (__u64)TW_NO_STATION << 32 | index;
}

/* Writes an event. */
static __always_inline void tw_write(struct tw_cpu *cpu, __u32 hook, __u64 now, __u64 object,
				     __u64 tag, __u64 aux, __u64 info, __u32 length, __u32 thread)
{
	__u32 number = bpf_get_smp_processor_id();
	struct tw_event *event;
	__u32 index;

	if (settings.mode != TW_EVENTS)
		return;
	if (cpu->head - *(volatile __u64 *)&cpu->tail >= settings.slots - TW_SPARE) {
		cpu->lost[hook]++;
		return;
	}
	index = __sync_fetch_and_add(&cpu->head, 1) & (settings.slots - 1);
	index += number * settings.slots;
	event = bpf_map_lookup_elem(&rings, &index);
	if (!event)
		return;
	event->object = object;
	event->tag = tag;
	event->aux = aux;
	event->interface = info;
	event->thread = thread;
	event->cpu = number;
	event->flags = TW_INFO_FLAGS(info);
	event->length = length > 0xffff ? 0xffff : length;
	event->hook = hook;
	event->station = info >> 32;
	cpu->written[hook]++;
	if (settings.is_ordered) {
		barrier();
		*(volatile __u64 *)&event->at = now;
	} else {
		__sync_lock_test_and_set(&event->at, now);
	}
}

static __always_inline __u32 tw_log2(__u64 value)
{
	__u32 bits = 0;

	if (value >> 32)
		return 31;
	bits |= (value >> 16 ? 1 : 0) << 4;
	bits |= (value >> (bits + 8) ? 1 : 0) << 3;
	bits |= (value >> (bits + 4) ? 1 : 0) << 2;
	bits |= (value >> (bits + 2) ? 1 : 0) << 1;
	bits |= value >> (bits + 1) ? 1 : 0;
	return bits & 31;
}

/* From the hook at which the packet was seen last to this one. */
static __always_inline void tw_time(struct tw_entry *entry, __u32 hook, __u64 now)
{
	struct tw_times *last;
	struct tw_histogram *histogram;
	__u32 pair;
	__u64 before;

	last = bpf_map_lookup_elem(&times, &entry->index);
	if (!last)
		return;
	before = last->last[entry->way & 3];
	last->last[entry->way & 3] = now << 5 | hook;
	if (!before || (entry->info >> TW_FLAGS_SHIFT & TW_FIRST))
		return;
	pair = (before & 31) * TW_HOOKS + hook;
	histogram = bpf_map_lookup_elem(&histograms, &pair);
	if (histogram)
		histogram->bins[tw_log2(now - (before >> 5))]++;
}

/* Tells that a packet that is followed was at a hook. */
static __always_inline void tw_tell(struct tw_cpu *cpu, __u32 hook, __u64 now, __u64 head,
				    struct tw_entry *entry, __u64 aux, __u32 length)
{
	cpu->matched[hook]++;
	if (settings.mode == TW_HISTOGRAMS)
		tw_time(entry, hook, now);
	tw_write(cpu, hook, now, tw_disguise(head), entry->tag, aux, entry->info, length,
		 bpf_get_current_pid_tgid());
}

#endif

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Writes down where packets are on their way through the kernel: one program for each tracepoint,
 * one for the drivers of interfaces, and some for functions where there is no tracepoint.
 *
 * A packet is compared with the filter where it is seen first: where it is handed to a device, and
 * where a device hands it up. Then it is followed by the address of its buffer (`head`), which
 * copies of the packet share, so that later hooks look into a table only. A buffer can be used
 * again without any hook learning of it, so a packet is compared anew wherever a way begins.
 *
 * Not here: which packet it is (identity.bpf.h), the table and the rings (trace.bpf.h), sockets
 * (sockets.bpf.h).
 */
#include "identity.bpf.h"

#define TW_ETHERNET 1
#define TW_LOOPBACK 772
#define TW_ETHERNET_HEADER 14
#define TW_FAMILY_INET 2
#define TW_FAMILY_INET6 10
#define TW_FAMILY_PACKET 17
#define TW_STREAM 1
#define TW_AGAIN 11
#define TW_PEEK 2
#define TW_ERROR_QUEUE 0x2000
#define TW_HAS_CPU_STATISTICS 0x20
#define TW_MOST_IN_BULK 16

static __always_inline int tw_is_segmented(struct sk_buff *skb, __u64 head)
{
	struct skb_shared_info *shared = (void *)(head + skb->end);
	__u16 size = 0;

	if (!skb->data_len)
		return 0;
	bpf_probe_read_kernel(&size, sizeof(size), &shared->gso_size);
	return size != 0;
}

static __always_inline void tw_see_tag_beside(struct sk_buff *skb, struct tw_view *view)
{
	struct sk_buff___old *old = (void *)skb;

	if (bpf_core_field_exists(old->vlan_present))
		view->has_tci = BPF_CORE_READ_BITFIELD(old, vlan_present);
	else
		view->has_tci = skb->vlan_proto != 0;
	view->tci = skb->vlan_tci;
}

/* Where the frame lies; negative when nothing is known of it. */
static __always_inline int tw_see(struct sk_buff *skb, __u64 head, struct net_device *device,
				  int sends, struct tw_view *view)
{
	__u64 data = head + (skb->data - skb->head);
	__u32 type = device->type;

	view->has_ethernet = type == TW_ETHERNET || type == TW_LOOPBACK;
	view->protocol = skb->protocol;
	view->at = data;
	if (view->has_ethernet && !sends) {
		if (skb->mac_header == 0xffff)
			return -1;
		view->at = head + skb->mac_header;
	} else if (!view->has_ethernet && sends) {
		view->at = head + skb->network_header;
	}
	view->length = skb->len + (__u32)(data - view->at);
	view->linear = view->length - skb->data_len;
	if ((__s32)view->linear < 0)
		return -1;
	tw_see_tag_beside(skb, view);
	return 0;
}

static __always_inline void tw_see_names(struct net_device *device, int sends, struct sk_buff *skb,
					 struct tw_keys *keys)
{
	if (settings.has_process && sends && skb->sk)
		keys->words[TW_PROCESS] = bpf_get_current_pid_tgid();
	if (settings.has_names && sends && skb->sk)
		bpf_get_current_comm(&keys->words[TW_PROCESS_NAME], 16);
	if (settings.has_interface)
		bpf_probe_read_kernel_str(&keys->words[TW_INTERFACE], 16, device->name);
}

/* Makes known whose packets have that tag. */
static __noinline int tw_learn_flow(struct tw_cpu *cpu, const struct tw_found *found, __u64 tag,
				    __u64 flags)
{
	struct tw_flow flow = {};
	__u32 key = tag >> 32;

	if (cpu->last_flow == key && key)
		return 0;
	cpu->last_flow = key;
	if (bpf_map_lookup_elem(&flows, &key))
		return 0;
	__builtin_memcpy(flow.words, found->keys.words, sizeof(flow.words));
	flow.kind = found->keys.kind;
	if (flags & TW_HAS_STREAM)
		flow.stream = (key & 0xffff) + 1;
	bpf_map_update_elem(&flows, &key, &flow, BPF_NOEXIST);
	return 0;
}

/*
 * Whether the packet is asked for; fills in tag and info. What is known of its buffer is forgotten
 * when it is not, or is another.
 */
static __noinline int tw_match(struct tw_cpu *cpu, struct sk_buff *skb, __u64 head,
			       struct tw_entry *entry, int sends)
{
	struct net_device *device = skb->dev;
	struct tw_entry old = {};
	struct tw_found found;
	struct tw_view view;
	__u64 flags = 0;
	int known, holds;

	if (tw_see(skb, head, device, sends, &view) || tw_parse(&view, &found))
		return 0;
	tw_see_names(device, sends, skb, &found.keys);
	known = tw_find(head, &old);
	holds = tw_holds(&found.keys);
	/* Who sent it was known there only. */
	if (holds || (known && !sends && (settings.has_process || settings.has_names))) {
		entry->tag = tw_tag(&view, &found, &flags);
		known = known && old.tag == entry->tag;
		if ((holds && tw_keeps(entry->tag)) || (!holds && known)) {
			if (flags & TW_IS_SCATTERED)
				cpu->scattered++;
			if (!known)
				flags |= TW_FIRST;
			if (BPF_CORE_READ_BITFIELD(skb, cloned))
				flags |= TW_CLONED;
			if (tw_is_segmented(skb, head))
				flags |= TW_SEGMENTED;
			if (!known)
				tw_learn_flow(cpu, &found, entry->tag, flags);
			entry->info = tw_place(device) | (flags & 0xff) << TW_FLAGS_SHIFT;
			return 1;
		}
	}
	if (old.set)
		tw_forget(head, &old);
	cpu->unmatched[head >> 6 & (TW_UNMATCHED - 1)] = head;
	return 0;
}

/* Whether this CPU has just found that the packet is not asked for. */
static __always_inline int tw_was_unmatched(struct tw_cpu *cpu, __u64 head)
{
	return cpu->unmatched[head >> 6 & (TW_UNMATCHED - 1)] == head;
}

static __always_inline void tw_set_stage(struct tw_entry *entry, __u64 head, __u32 stage)
{
	__u64 info = entry->info & ~(TW_STAGE_MASK | (__u64)TW_FIRST << TW_FLAGS_SHIFT);

	info |= (__u64)stage << TW_STAGE_SHIFT;
	entry->info = info;
	tw_put(entry->set, entry->way, head, entry->tag, info);
}

static __always_inline void tw_hold(struct tw_cpu *cpu, __u64 head, struct tw_entry *entry,
				    __u32 length)
{
	cpu->current = head;
	cpu->current_tag = entry->tag;
	cpu->current_info = entry->info;
	cpu->current_length = length;
	cpu->current_socket = 0;
}

/* Apart, as are others: a stack has 512 bytes in all. */
static __noinline int tw_learn_thread(struct tw_cpu *cpu)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct tw_name name = {};

	if (!thread || cpu->last_thread == thread)
		return 0;
	cpu->last_thread = thread;
	if (bpf_map_lookup_elem(&names, &thread))
		return 0;
	bpf_get_current_comm(name.name, sizeof(name.name));
	bpf_map_update_elem(&names, &thread, &name, BPF_ANY);
	return 0;
}

/* The socket has sent a packet that is followed. */
static __noinline int tw_learn_sender(__u64 sock, const struct tw_entry *entry)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct tw_socket *known = bpf_map_lookup_elem(&sockets, &sock);
	struct tw_thread sender = {};
	struct tw_socket new = {};

	if ((!known || known->sender != thread) && thread) {
		sender.place = entry->info & TW_PLACE_MASK;
		bpf_map_update_elem(&threads, &thread, &sender, BPF_NOEXIST);
		has_threads = 1;
	}
	if (known) {
		known->sent = entry->tag;
		known->sender = thread;
		known->place = entry->info & TW_PLACE_MASK;
		return 0;
	}
	new.sent = entry->tag;
	new.sender = thread;
	new.place = entry->info & TW_PLACE_MASK;
	bpf_map_update_elem(&sockets, &sock, &new, BPF_ANY);
	has_sockets = 1;
	return 0;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(tw_device_queue, struct sk_buff *skb)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u64 head, sock;
	struct tw_entry entry = {};
	__u64 now;

	if (!cpu)
		return 0;
	cpu->seen[TW_DEVICE_QUEUE]++;
	cpu->handed = 0;
	head = tw_plain(cpu, TW_DEVICE_QUEUE, skb->head);
	if (!tw_match(cpu, skb, head, &entry, 1)) {
		cpu->current = head;
		cpu->current_tag = 0;
		return 0;
	}
	now = bpf_ktime_get_ns();
	entry.info |= (__u64)TW_DEVICE_QUEUE << TW_STAGE_SHIFT;
	tw_follow(cpu, head, &entry, now);
	tw_hold(cpu, head, &entry, skb->len);
	sock = tw_plain(cpu, TW_DEVICE_QUEUE, skb->sk);
	if (sock && settings.mode == TW_EVENTS) {
		tw_learn_sender(sock, &entry);
		tw_learn_thread(cpu);
	}
	tw_tell(cpu, TW_DEVICE_QUEUE, now, head, &entry, tw_disguise(sock), skb->len);
	return 0;
}

static __always_inline __u64 tw_qdisc_aux(struct Qdisc *qdisc, __u32 before)
{
	__u64 aux = (__u64)qdisc->handle << 32;

	/* Without a lock its frames are counted by CPU. */
	if (qdisc->flags & TW_HAS_CPU_STATISTICS)
		return aux | 0xffffffff;
	return aux | (qdisc->q.qlen - before);
}

/* The kernel tells it behind the step. */
SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(tw_qdisc_enqueue, struct Qdisc *qdisc, const void *queue, struct sk_buff *skb)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_entry entry = {};
	__u64 head;

	if (!cpu || !skb)
		return 0;
	cpu->seen[TW_QDISC_ENQUEUE]++;
	head = tw_plain(cpu, TW_QDISC_ENQUEUE, skb->head);
	if (!tw_find(head, &entry))
		return 0;
	tw_set_stage(&entry, head, TW_QDISC_ENQUEUE);
	tw_tell(cpu, TW_QDISC_ENQUEUE, bpf_ktime_get_ns(), head, &entry, tw_qdisc_aux(qdisc, 1),
		skb->len);
	return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(tw_qdisc_dequeue, struct Qdisc *qdisc, const void *queue, int packets,
	     struct sk_buff *skb)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_entry entry = {};
	__u64 head;
	int i;

	if (!cpu)
		return 0;
	for (i = 0; i < TW_MOST_IN_BULK && skb; i++) {
		cpu->seen[TW_QDISC_DEQUEUE]++;
		head = tw_plain(cpu, TW_QDISC_DEQUEUE, skb->head);
		if (tw_find(head, &entry)) {
			tw_set_stage(&entry, head, TW_QDISC_DEQUEUE);
			tw_hold(cpu, head, &entry, skb->len);
			tw_tell(cpu, TW_QDISC_DEQUEUE, bpf_ktime_get_ns(), head, &entry,
				tw_qdisc_aux(qdisc, 0), skb->len);
		}
		if (packets <= 1)
			break;
		skb = skb->next;
	}
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(tw_driver_start, struct sk_buff *skb, struct net_device *device)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u64 head;
	struct tw_sending *sending;
	struct tw_entry entry = {};
	__u32 stage;
	__u64 now;
	int known;

	if (!cpu)
		return 0;
	cpu->seen[TW_DRIVER_START]++;
	head = tw_plain(cpu, TW_DRIVER_START, skb->head);
	known = tw_find(head, &entry);
	stage = TW_INFO_STAGE(entry.info);
	if (known && stage >= TW_DEVICE_QUEUE && stage <= TW_QDISC_DEQUEUE) {
		now = bpf_ktime_get_ns();
		tw_set_stage(&entry, head, TW_DRIVER_START);
	} else {
		/* Past the queues, or again. */
		if ((!known && tw_was_unmatched(cpu, head)) ||
		    !tw_match(cpu, skb, head, &entry, 1)) {
			cpu->handed = head;
			return 0;
		}
		now = bpf_ktime_get_ns();
		entry.info = (entry.info & ~TW_STAGE_MASK) |
			     (__u64)TW_DRIVER_START << TW_STAGE_SHIFT;
		tw_follow(cpu, head, &entry, now);
	}
	/* One that was handed over before and of which no end was told is none of this one. */
	cpu->handed = 0;
	sending = &cpu->sending[cpu->next_sending++ & (TW_SENDING - 1)];
	sending->skb = tw_plain(cpu, TW_DRIVER_START, skb);
	sending->object = head;
	sending->tag = entry.tag;
	sending->info = entry.info & ~((__u64)TW_FIRST << TW_FLAGS_SHIFT);
	tw_tell(cpu, TW_DRIVER_START, now, head, &entry, skb->queue_mapping, skb->len);
	return 0;
}

/* The packet may be gone: only its address is of use. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(tw_driver_done, const void *skb, int result, const void *device, unsigned int length)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_sending *sending;
	struct tw_entry entry = {};
	int i;

	if (!cpu)
		return 0;
	cpu->seen[TW_DRIVER_DONE]++;
	/* Not asked for, so it is not among these. */
	if (cpu->handed) {
		cpu->handed = 0;
		return 0;
	}
#pragma unroll
	for (i = 0; i < TW_SENDING; i++) {
		sending = &cpu->sending[i];
		if (sending->skb != (__u64)skb)
			continue;
		sending->skb = 0;
		if (settings.mode == TW_HISTOGRAMS) {
			/* It may be at another stage by now, with another packet's name. */
			if (!tw_find(sending->object, &entry) || entry.tag != sending->tag)
				return 0;
		}
		entry.tag = sending->tag;
		entry.info = sending->info;
		tw_tell(cpu, TW_DRIVER_DONE, bpf_ktime_get_ns(), sending->object, &entry,
			(__s64)result, length);
		return 0;
	}
	return 0;
}

/* Where a device hands a packet up. */
static __always_inline int tw_arrive(struct sk_buff *skb, __u32 hook)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u64 head;
	struct tw_entry entry = {};
	__u64 now;

	if (!cpu)
		return 0;
	cpu->seen[hook]++;
	head = tw_plain(cpu, hook, skb->head);
	/* Between the two ends of a virtual cable it stays what it is, but for the interface and
	 * the sender, who is not known here. */
	if (head == cpu->handed && !settings.has_interface && !settings.has_process &&
	    !settings.has_names)
		return 0;
	if (!tw_match(cpu, skb, head, &entry, 0))
		return 0;
	now = bpf_ktime_get_ns();
	entry.info |= (__u64)hook << TW_STAGE_SHIFT;
	tw_follow(cpu, head, &entry, now);
	tw_tell(cpu, hook, now, head, &entry, cpu->seen[TW_STACK_RECEIVE], skb->len);
	return 0;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(tw_receive_queue, struct sk_buff *skb)
{
	return tw_arrive(skb, TW_RECEIVE_QUEUE);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(tw_napi_receive, struct sk_buff *skb)
{
	return tw_arrive(skb, TW_NAPI_RECEIVE);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(tw_stack_receive, struct sk_buff *skb)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u64 head;
	struct tw_entry entry = {};
	__u64 now, before;
	__u32 stage;
	int known;

	if (!cpu)
		return 0;
	before = cpu->seen[TW_STACK_RECEIVE]++;
	head = tw_plain(cpu, TW_STACK_RECEIVE, skb->head);
	known = tw_find(head, &entry);
	stage = TW_INFO_STAGE(entry.info);
	if (known && (stage == TW_RECEIVE_QUEUE || stage == TW_NAPI_RECEIVE)) {
		now = bpf_ktime_get_ns();
		/* Copies share what they are known by: this was where the last one went. */
		entry.info = (entry.info & ~TW_PLACE_MASK) | tw_place(skb->dev);
		tw_set_stage(&entry, head, TW_STACK_RECEIVE);
	} else {
		if (!known && tw_was_unmatched(cpu, head))
			goto unmatched;
		if (!tw_match(cpu, skb, head, &entry, 0))
			goto unmatched;
		now = bpf_ktime_get_ns();
		entry.info |= (__u64)TW_STACK_RECEIVE << TW_STAGE_SHIFT;
		tw_follow(cpu, head, &entry, now);
	}
	tw_hold(cpu, head, &entry, skb->len);
	tw_tell(cpu, TW_STACK_RECEIVE, now, head, &entry, before, skb->len);
	return 0;
unmatched:
	/* It may be used again after this, so from here on nothing is known of it. */
	cpu->unmatched[head >> 6 & (TW_UNMATCHED - 1)] = 0;
	cpu->current = head;
	cpu->current_tag = 0;
	cpu->current_socket = 0;
	cpu->current_length = skb->len;
	if (has_sockets)
		cpu->current_info = tw_place(skb->dev);
	return 0;
}

#include "sockets.bpf.h"

SEC("tp_btf/sched_waking")
int BPF_PROG(tw_waking, struct task_struct *task)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_thread *thread;
	__u32 number;

	if (!cpu)
		return 0;
	cpu->seen[TW_WAKING]++;
	if (!has_threads)
		return 0;
	number = task->pid;
	thread = bpf_map_lookup_elem(&threads, &number);
	if (!thread || !thread->socket)
		return 0;
	cpu->matched[TW_WAKING]++;
	tw_write(cpu, TW_WAKING, bpf_ktime_get_ns(), thread->socket, 0, number, thread->place, 0,
		 bpf_get_current_pid_tgid());
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(tw_switch_in, int preempt, struct task_struct *before, struct task_struct *next)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_thread *thread;
	struct tw_name name = {};
	__u32 number, culprit;

	if (!cpu)
		return 0;
	cpu->seen[TW_SWITCH_IN]++;
	if (!has_threads)
		return 0;
	number = next->pid;
	thread = bpf_map_lookup_elem(&threads, &number);
	if (!thread || !thread->socket)
		return 0;
	culprit = before->pid;
	cpu->matched[TW_SWITCH_IN]++;
	tw_write(cpu, TW_SWITCH_IN, bpf_ktime_get_ns(), thread->socket, 0, culprit, thread->place,
		 0, number);
	if (culprit && !bpf_map_lookup_elem(&names, &culprit)) {
		bpf_probe_read_kernel_str(name.name, sizeof(name.name), before->comm);
		bpf_map_update_elem(&names, &culprit, &name, BPF_ANY);
	}
	return 0;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(tw_drop, struct sk_buff *skb, const void *location, int reason)
{
	struct tw_cpu *cpu = tw_this_cpu();
	__u64 head;
	struct tw_entry entry = {};

	if (!cpu)
		return 0;
	cpu->seen[TW_DROP]++;
	head = tw_plain(cpu, TW_DROP, skb->head);
	if (!tw_find(head, &entry))
		return 0;
	/* No frame: what was read and freed has left its buffer to a message of this host. Nor is a
	 * frame on its way down that short: its buffer has been used again, most likely for the
	 * empty packet that brings a timestamp to its sender.
	 */
	if (!skb->protocol ||
	    (skb->len < TW_ETHERNET_HEADER && TW_INFO_STAGE(entry.info) <= TW_DRIVER_START)) {
		tw_forget(head, &entry);
		return 0;
	}
	entry.info &= ~((__u64)TW_FIRST << TW_FLAGS_SHIFT);
	tw_tell(cpu, TW_DROP, bpf_ktime_get_ns(), head, &entry, reason, skb->len);
	/* Others may still have a copy. */
	if (!(TW_INFO_FLAGS(entry.info) & TW_CLONED) && !BPF_CORE_READ_BITFIELD(skb, cloned))
		tw_forget(head, &entry);
	return 0;
}

/* An event that has no packet. */
static __always_inline int tw_interval(__u32 hook, __u64 aux)
{
	struct tw_cpu *cpu = tw_this_cpu();

	if (!cpu)
		return 0;
	cpu->seen[hook]++;
	tw_write(cpu, hook, bpf_ktime_get_ns(), 0, 0, aux, (__u64)TW_NO_STATION << 32, 0,
		 bpf_get_current_pid_tgid());
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(tw_irq_entry, int number)
{
	return tw_interval(TW_IRQ_ENTRY, (__u32)number);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(tw_irq_exit, int number)
{
	return tw_interval(TW_IRQ_EXIT, (__u32)number);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(tw_softirq_entry, unsigned int kind)
{
	return tw_interval(TW_SOFTIRQ_ENTRY, kind);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(tw_softirq_exit, unsigned int kind)
{
	return tw_interval(TW_SOFTIRQ_EXIT, kind);
}

SEC("tp_btf/napi_poll")
int BPF_PROG(tw_napi_poll, const void *napi, int work, int budget)
{
	struct tw_cpu *cpu = tw_this_cpu();

	/* A poll in vain says nothing, and can happen a million times a second. */
	if (!work) {
		if (cpu)
			cpu->seen[TW_NAPI_POLL]++;
		return 0;
	}
	return tw_interval(TW_NAPI_POLL, (__u64)(__u32)work << 32 | (__u32)budget);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(tw_send_enter, const void *registers, long number)
{
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_thread *thread;
	__u32 who;
	int i;

	if (!cpu)
		return 0;
	cpu->seen[TW_SEND_ENTER]++;
	if (!has_threads || settings.mode != TW_EVENTS)
		return 0;
#pragma unroll
	for (i = 0; i < 4; i++) {
		if ((__u32)number == settings.sends[i])
			goto sends;
	}
	return 0;
sends:
	who = bpf_get_current_pid_tgid();
	thread = bpf_map_lookup_elem(&threads, &who);
	if (!thread)
		return 0;
	cpu->matched[TW_SEND_ENTER]++;
	tw_write(cpu, TW_SEND_ENTER, bpf_ktime_get_ns(), 0, 0, number, thread->place, 0, who);
	return 0;
}

/* The driver's own form of what an XDP program is given (Linux 6.2). */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

/* As tw_match, of a frame that no buffer of the stack has yet. */
static __noinline int tw_match_frame(struct tw_cpu *cpu, struct xdp_buff *frame, __u32 length,
				     struct tw_entry *entry)
{
	struct net_device *device = frame->rxq->dev;
	__u64 data = (__u64)frame->data;
	struct tw_view view = {};
	struct tw_found found;
	__u64 flags = 0;

	if (device->type != TW_ETHERNET && device->type != TW_LOOPBACK)
		return 0;
	view.has_ethernet = 1;
	view.at = data;
	view.length = length;
	view.linear = (__u64)frame->data_end - data;
	if (view.linear > length || tw_parse(&view, &found))
		return 0;
	if (settings.has_interface)
		bpf_probe_read_kernel_str(&found.keys.words[TW_INTERFACE], 16, device->name);
	if (!tw_holds(&found.keys))
		return 0;
	entry->tag = tw_tag(&view, &found, &flags);
	if (!tw_keeps(entry->tag))
		return 0;
	tw_learn_flow(cpu, &found, entry->tag, flags);
	entry->info = tw_place(device) | (flags & 0xff) << TW_FLAGS_SHIFT;
	return 1;
}

/* There is no packet yet that could be followed: the tag alone says which it will be. */
SEC("xdp.frags")
int tw_xdp(struct xdp_md *context)
{
	__u32 length = bpf_xdp_get_buff_len(context);
	struct tw_cpu *cpu = tw_this_cpu();
	struct tw_entry entry = {};
	struct task_struct *task;
	struct xdp_buff *frame;

	if (!cpu)
		return XDP_PASS;
	cpu->seen[TW_XDP]++;
	frame = bpf_cast_to_kern_ctx(context);
	if (!tw_match_frame(cpu, frame, length, &entry))
		return XDP_PASS;
	cpu->matched[TW_XDP]++;
	task = (void *)bpf_get_current_task();
	/* Without the Ethernet header, as where the stack receives. */
	length = length > TW_ETHERNET_HEADER ? length - TW_ETHERNET_HEADER : 0;
	tw_write(cpu, TW_XDP, bpf_ktime_get_ns(), 0, entry.tag, cpu->seen[TW_STACK_RECEIVE],
		 entry.info, length, BPF_CORE_READ(task, pid));
	return XDP_PASS;
}

/* What a test asks: the tag and the keys of a frame, without a packet. */
struct tw_question {
	struct tw_view view;
	__u64 tag;
	__u64 flags;
	__s64 verdict; /* 1: the filter holds and the packet is kept; negative: not readable */
	struct tw_keys keys;
	__u8 frame[2048];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_question);
} question SEC(".maps");

SEC("syscall")
int tw_answer(void *context)
{
	__u32 first = 0;
	struct tw_question *asked = bpf_map_lookup_elem(&question, &first);
	struct tw_found found = {};
	struct tw_view view;

	if (!asked)
		return 0;
	/* Read back, the address is a plain number. */
	asked->view.at = (__u64)asked->frame;
	barrier();
	bpf_probe_read_kernel(&view, sizeof(view), &asked->view);
	asked->flags = 0;
	asked->tag = 0;
	asked->verdict = tw_parse(&view, &found);
	asked->keys = found.keys;
	if (asked->verdict < 0)
		return 0;
	asked->tag = tw_tag(&view, &found, &asked->flags);
	asked->verdict = tw_holds(&found.keys) && tw_keeps(asked->tag);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

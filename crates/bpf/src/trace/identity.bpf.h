/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which packet it is: the numbers that a filter compares (timewire_capture::filter::Keys), and the
 * tag that is the same on every host (timewire_capture::identity says how it comes about).
 *
 * Not here: where in a socket buffer the frame lies (trace.bpf.c).
 */
#ifndef TIMEWIRE_IDENTITY_BPF_H
#define TIMEWIRE_IDENTITY_BPF_H

#include <linux/in.h>

#include "trace.bpf.h"

#define TW_TYPE_IP 0x0800
#define TW_TYPE_ARP 0x0806
#define TW_TYPE_RARP 0x8035
#define TW_TYPE_IPV6 0x86dd
#define TW_TYPE_VLAN 0x8100
#define TW_TYPE_SERVICE_VLAN 0x88a8
#define TW_TYPE_PTP 0x88f7
#define TW_PROTOCOL_SCTP 132
#define TW_PROTOCOL_FRAGMENT 44
#define TW_PTP_EVENT 319

#define TW_KIND_IPV4 1
#define TW_KIND_ARP 2
#define TW_KIND_RARP 4
#define TW_KIND_IPV6 8
#define TW_KIND_OTHER 16

/* Words of the keys. */
enum {
	TW_SOURCE,
	TW_SOURCE_LOW,
	TW_DESTINATION,
	TW_DESTINATION_LOW,
	TW_SOURCE_PORT,
	TW_DESTINATION_PORT,
	TW_ETHER_DESTINATION,
	TW_ETHER_SOURCE,
	TW_PROCESS,
	TW_PROCESS_NAME,
	TW_PROCESS_NAME_END,
	TW_INTERFACE,
	TW_INTERFACE_END,
};

#define TW_HAS_PORTS (1ULL << 24)
#define TW_HAS_VLAN (1ULL << 63)
#define TW_MAC ((1ULL << 48) - 1)

#define TW_CONTENT_WORDS 8
#define TW_CONTENT (8 * TW_CONTENT_WORDS)
/* The least that a frame carries; what is shorter is filled up. */
#define TW_LEAST_PAYLOAD 46

/* Beside the flags of an event. */
#define TW_IS_SCATTERED (1ULL << 32)
#define TW_HAS_STREAM (1ULL << 33)

#define TW_MIX 0x9e3779b97f4a7c15ULL
#define TW_STREAM_MARK 0x31735754 /* TWs1 */
#define TW_STREAM_MARK_LONG 0x32735754 /* TWs2 */
#define TW_MESSAGE_MARK 0x316d5754 /* TWm1 */
#define TW_STREAM_HEADER 18
#define TW_MESSAGE_HEADER 8

/* Where a frame lies. */
struct tw_view {
	__u64 at; /* address of the Ethernet header, or of what follows it if there is none */
	__u32 length;
	__u32 linear; /* so many bytes of it lie there */
	__u16 has_ethernet;
	__be16 protocol; /* without an Ethernet header */
	__u16 tci; /* of the tag beside the frame */
	__u16 has_tci;
};

struct tw_keys {
	__u64 words[TW_KEY_WORDS];
	__u64 kind;
};

/* What was found in a frame. */
struct tw_found {
	struct tw_keys keys;
	__u32 payload; /* where it starts */
	__u32 payload_length;
	__u32 id; /* of the IP packet, and where in it the fragment lies */
	__u16 skip; /* whether the second word of the content changes on the way */
	__u16 skip_half; /* or a part of it does */
};

#define TW_IP_BYTES 48

/* What is read of a frame: two bytes before it, so that numbers behind its header are aligned. */
struct tw_start {
	__u16 before;
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
	__u8 packet[TW_IP_BYTES];
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct tw_start) == 64, "what follows is aligned");

static __always_inline __u64 tw_mix(__u64 state, __u64 word)
{
	state = (state ^ word) * TW_MIX;
	return state ^ state >> 32;
}

/* Numbers of headers, at places that are aligned. */
static __always_inline __u32 tw_half(const __u8 *bytes)
{
	return bpf_ntohs(*(const __u16 *)bytes);
}

static __always_inline __u32 tw_word(const __u8 *bytes)
{
	return bpf_ntohl(*(const __u32 *)bytes);
}

static __always_inline __u64 tw_long(const __u8 *bytes)
{
	return bpf_be64_to_cpu(*(const __u64 *)bytes);
}

/* The ports, and where what follows them starts. */
static __always_inline void tw_find_ports(struct tw_found *found, __u64 protocol, __u32 ports,
					  int has_ports)
{
	__u64 *words = found->keys.words;

	words[TW_SOURCE_PORT] = protocol << 16;
	words[TW_DESTINATION_PORT] = protocol << 16;
	if (!has_ports)
		return;
	words[TW_SOURCE_PORT] |= TW_HAS_PORTS | ports >> 16;
	words[TW_DESTINATION_PORT] |= TW_HAS_PORTS | (ports & 0xffff);
}

/* What stands in a segment of that protocol. */
static __always_inline void tw_find_content(struct tw_found *found, __u64 protocol)
{
	__u16 to = found->keys.words[TW_DESTINATION_PORT];

	if (protocol == IPPROTO_UDP && found->payload_length >= 8) {
		found->payload += 8;
		found->payload_length -= 8;
		if (to == TW_PTP_EVENT)
			found->skip = 1;
	} else if (protocol == IPPROTO_TCP && found->payload_length >= 20) {
		/* From the sequence number on, without the checksum. */
		found->payload += 4;
		found->payload_length -= 4;
		found->skip_half = 1;
	}
}

/* Where what stands behind an IP header starts and ends; a length that cannot be is not believed.
 */
static __always_inline void tw_find_payload(const struct tw_view *view, struct tw_found *found,
					    __u32 offset, __u32 header, __u32 total)
{
	__u32 all = view->length - offset;

	if (total < header || total > all)
		total = all;
	found->payload = offset + header;
	found->payload_length = total > header ? total - header : 0;
}

static __always_inline int tw_has_ports(__u64 protocol)
{
	return protocol == IPPROTO_UDP || protocol == IPPROTO_TCP || protocol == TW_PROTOCOL_SCTP;
}

static __always_inline void tw_parse_ipv4(const struct tw_view *view, struct tw_found *found,
					  __u32 offset, const __u8 *ip)
{
	__u32 header = (ip[0] & 15) * 4, fragment = tw_half(ip + 6);
	__u32 ports = 0, room = view->linear - offset;
	__u64 *words = found->keys.words;
	__u64 protocol = ip[9];
	int has_ports;

	if (room < 20)
		return;
	found->keys.kind = TW_KIND_IPV4;
	words[TW_SOURCE_LOW] = tw_word(ip + 12);
	words[TW_DESTINATION_LOW] = tw_word(ip + 16);
	has_ports = tw_has_ports(protocol) && !(fragment & 0x1fff) && room >= header + 4;
	if (has_ports && header == 20) {
		ports = tw_word(ip + 20);
	} else if (has_ports) {
		if (bpf_probe_read_kernel(&ports, 4, (void *)(view->at + offset + header)))
			has_ports = 0;
		ports = bpf_ntohl(ports);
	}
	tw_find_ports(found, protocol, ports, has_ports);
	tw_find_payload(view, found, offset, header, tw_half(ip + 2));
	found->id = tw_half(ip + 4) | (fragment & 0x3fff) << 16;
	if (has_ports && !(fragment & 0x3fff))
		tw_find_content(found, protocol);
}

static __always_inline void tw_parse_ipv6(const struct tw_view *view, struct tw_found *found,
					  __u32 offset, const __u8 *ip)
{
	__u32 total = tw_half(ip + 4), room = view->linear - offset;
	__u64 *words = found->keys.words;
	__u64 protocol = ip[6];
	int has_ports;

	if (room < 40)
		return;
	found->keys.kind = TW_KIND_IPV6;
	words[TW_SOURCE] = tw_long(ip + 8);
	words[TW_SOURCE_LOW] = tw_long(ip + 16);
	words[TW_DESTINATION] = tw_long(ip + 24);
	words[TW_DESTINATION_LOW] = tw_long(ip + 32);
	has_ports = tw_has_ports(protocol) && room >= 44;
	/* Of a fragment, what is fragmented. */
	if (protocol == TW_PROTOCOL_FRAGMENT && room >= 48)
		protocol = ip[40];
	tw_find_ports(found, protocol, tw_word(ip + 40), has_ports);
	total = total ? total + 40 : 0;
	if (total > 0xffff)
		total = 0xffff;
	tw_find_payload(view, found, offset, 40, total);
	if (has_ports)
		tw_find_content(found, protocol);
}

/* Behind VLAN tags: the EtherType, and where what it stands for starts. */
static __always_inline __u32 tw_skip_tags(const struct tw_view *view, const struct tw_start *start,
					  __u16 *type, __u16 *tci, __u16 *has_tci)
{
	const __be16 *tag = (const __be16 *)start->packet;
	__u32 offset = 14;
	int i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		if (*type != TW_TYPE_VLAN && *type != TW_TYPE_SERVICE_VLAN)
			break;
		if (view->linear < offset + 4)
			break;
		if (!*has_tci) {
			*tci = bpf_ntohs(tag[2 * i]);
			*has_tci = 1;
		}
		*type = bpf_ntohs(tag[2 * i + 1]);
		offset += 4;
	}
	return offset;
}

/* Fills in what the frame tells; negative when it cannot be read. */
static __noinline int tw_parse(const struct tw_view *view, struct tw_found *found)
{
	__u16 tci = view->tci, has_tci = view->has_tci;
	__u16 type = bpf_ntohs(view->protocol);
	__u64 *words = found->keys.words;
	__u32 offset = 0, least = 0;
	struct tw_start start = {};

	__builtin_memset(found, 0, sizeof(*found));
	found->keys.kind = TW_KIND_OTHER;
	if (view->has_ethernet) {
		if (view->linear < 14 ||
		    bpf_probe_read_kernel(&start, sizeof(start), (void *)(view->at - 2)))
			return -1;
		type = bpf_ntohs(start.type);
		offset = tw_skip_tags(view, &start, &type, &tci, &has_tci);
		words[TW_ETHER_DESTINATION] = (__u64)tw_half(start.destination) << 32 |
					      (__u64)tw_half(start.destination + 2) << 16 |
					      tw_half(start.destination + 4);
		words[TW_ETHER_SOURCE] = tw_long(start.source) >> 16;
		least = TW_LEAST_PAYLOAD;
	}
	words[TW_ETHER_DESTINATION] |= (__u64)type << 48;
	if (has_tci)
		words[TW_ETHER_SOURCE] |= TW_HAS_VLAN | (__u64)(tci & 0xfff) << 48 |
					  (__u64)(tci >> 13) << 60;
	if (view->linear < offset)
		return -1;
	if (offset != 14 && view->linear > offset &&
	    bpf_probe_read_kernel(start.packet, TW_IP_BYTES, (void *)(view->at + offset)))
		return -1;
	found->payload = offset;
	found->payload_length = view->length - offset;
	if (found->payload_length < least)
		found->payload_length = least;
	switch (type) {
	case TW_TYPE_IP:
		tw_parse_ipv4(view, found, offset, start.packet);
		break;
	case TW_TYPE_IPV6:
		tw_parse_ipv6(view, found, offset, start.packet);
		break;
	case TW_TYPE_ARP:
	case TW_TYPE_RARP:
		if (view->linear - offset < 28)
			break;
		found->keys.kind = type == TW_TYPE_ARP ? TW_KIND_ARP : TW_KIND_RARP;
		words[TW_SOURCE_LOW] = (__u64)tw_half(start.packet + 14) << 16 |
				       tw_half(start.packet + 16);
		words[TW_DESTINATION_LOW] = tw_word(start.packet + 24);
		break;
	case TW_TYPE_PTP:
		/* Switches add to the correction field. */
		found->skip = 1;
		break;
	}
	return 0;
}

static __always_inline int tw_compares(const volatile struct tw_test *test, __u32 word,
				       const struct tw_keys *keys)
{
	__u64 first = keys->words[word & 15], next = keys->words[(word + 1) & 15];

	return (first & test->mask) - test->least <= test->span &&
	       (!test->next_mask || (next & test->next_mask) == test->next_value);
}

/* Whether the filter holds; its words are constants to the verifier, which leaves out the rest. */
static __noinline int tw_holds(const struct tw_keys *keys)
{
	const volatile struct tw_test *test;
	__u32 outcome = 0, all, none;
	int i;

#pragma unroll
	for (i = 0; i < TW_MAX_TESTS; i++) {
		if (i >= settings.match.tests_count)
			break;
		test = &settings.match.tests[i];
		if (!(test->kinds & keys->kind))
			continue;
		if (tw_compares(test, test->word, keys) ||
		    (test->other != test->word && tw_compares(test, test->other, keys)))
			outcome |= 1U << i;
	}
#pragma unroll
	for (i = 0; i < TW_MAX_CONJUNCTIONS; i++) {
		if (i >= settings.match.conjunctions_count)
			break;
		all = settings.match.conjunctions[i].all;
		none = settings.match.conjunctions[i].none;
		if ((outcome & all) == all && !(outcome & none))
			return 1;
	}
	return 0;
}

/* The hash of whose packet it is. */
static __always_inline __u64 tw_flow_hash(const struct tw_keys *keys)
{
	const __u64 *words = keys->words;
	__u64 state = TW_MIX;

	if (!(keys->kind & (TW_KIND_IPV4 | TW_KIND_IPV6))) {
		state = tw_mix(state, words[TW_ETHER_DESTINATION]);
		return tw_mix(state, words[TW_ETHER_SOURCE] & TW_MAC) >> 32;
	}
	state = tw_mix(state, words[TW_SOURCE] ^ keys->kind);
	state = tw_mix(state, words[TW_SOURCE_LOW]);
	state = tw_mix(state, words[TW_DESTINATION]);
	state = tw_mix(state, words[TW_DESTINATION_LOW]);
	return tw_mix(state, words[TW_SOURCE_PORT] << 32 | words[TW_DESTINATION_PORT]) >> 32;
}

/* A tag that the user said where to find. */
static __always_inline int tw_user_tag(const struct tw_view *view, const struct tw_found *found,
				       __u64 flow, __u64 *tag)
{
	__u32 width = settings.tag_width, offset = settings.tag_offset, start;
	__u64 value = 0;

	if (!width || offset + width > found->payload_length)
		return 0;
	start = found->payload + offset;
	if (start + width > view->linear)
		return 0;
	if (bpf_probe_read_kernel(&value, 8, (void *)(view->at + start)))
		return 0;
	if (settings.tag_big)
		value = bpf_be64_to_cpu(value);
	else
		value <<= 64 - 8 * width;
	value >>= 64 - 8 * width;
	*tag = width == 8 ? value : flow << 32 | value;
	return 1;
}

/* The tag of the packet; its flags are added to `flags`. */
static __noinline __u64 tw_tag(const struct tw_view *view, const struct tw_found *found,
			       __u64 *flags)
{
	__u64 words[TW_CONTENT_WORDS] = {};
	__u64 flow = tw_flow_hash(&found->keys), tag = 0, state = TW_MIX;
	__u32 n = found->payload_length, room = 0;
	int i;

	if (found->payload < view->linear)
		room = view->linear - found->payload;
	/* What fills a short frame up is 0, as are the words. */
	if (found->payload + n > view->length)
		n = view->length > found->payload ? view->length - found->payload : 0;
	if (n > TW_CONTENT)
		n = TW_CONTENT;
	if (n > room) {
		*flags |= TW_IS_SCATTERED;
		n = room;
	}
	if (n > TW_CONTENT)
		n = TW_CONTENT;
	if (n)
		bpf_probe_read_kernel(words, n, (void *)(view->at + found->payload));
	if (tw_user_tag(view, found, flow, &tag)) {
		*flags |= TW_TAGGED;
		return tag ? tag : 1;
	}
	if (n >= TW_STREAM_HEADER && ((__u32)words[0] == TW_STREAM_MARK ||
				      (__u32)words[0] == TW_STREAM_MARK_LONG)) {
		*flags |= TW_TAGGED | TW_HAS_STREAM;
		flow = (flow & 0xffff0000) | (words[0] >> 32 & 0x7fff);
		return flow << 32 | (words[0] >> 48) | (words[1] & 0xffff) << 16;
	}
	if (n >= TW_MESSAGE_HEADER && words[0] >> 32 == TW_MESSAGE_MARK) {
		*flags |= TW_TAGGED;
		tag = flow << 32 | (__u32)words[0];
		return tag ? tag : 1;
	}
	if (found->skip)
		words[1] = 0;
	if (found->skip_half)
		words[1] &= ~0xffff00000000ULL;
#pragma unroll
	for (i = 0; i < TW_CONTENT_WORDS; i++)
		state = tw_mix(state, words[i]);
	state = tw_mix(state, (__u64)found->id << 32 | found->payload_length);
	tag = flow << 32 | state >> 32;
	return tag ? tag : 1;
}

/* Whether a packet of that tag is among those that are kept. */
static __always_inline int tw_keeps(__u64 tag)
{
	__u64 spread = tag * TW_MIX >> 32;

	return settings.keep_one_of <= 1 || spread * settings.keep_one_of >> 32 == 0;
}

#endif

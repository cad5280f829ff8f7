// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Loaded into the peers (LD_PRELOAD) so that they start; none of it is called for a frame.
//
// isochron starts only on an interface whose NIC timestamps every frame and has a clock. A virtual
// cable has no NIC: this says that timestamping was switched on, and that the NIC's clock is
// CLOCK_TAI. xdp-trafficgen 1.3.1 finds out whether the kernel sends live frames by one that later
// kernels refuse for its length, 4 bytes, and gives up (mended in later versions): this makes it
// 64.
//
// Not here: anything that measures.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

/* The descriptor that FD_TO_CLOCKID() makes CLOCK_TAI of: (~fd << 3 | 3) is 11 in 32 bits. */
#define TAI_AS_DESCRIPTOR 0x1ffffffe

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, void *);
	struct ethtool_ts_info *info;
	va_list more;
	void *argument;
	int result;

	va_start(more, request);
	argument = va_arg(more, void *);
	va_end(more);
	if (request == SIOCSHWTSTAMP)
		return 0;
	if (!next)
		next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	result = next(fd, request, argument);
	if (result == 0 && request == SIOCETHTOOL) {
		info = (struct ethtool_ts_info *)((struct ifreq *)argument)->ifr_data;
		if (info->cmd == ETHTOOL_GET_TS_INFO && info->phc_index < 0)
			info->phc_index = 0;
	}
	return result;
}

/* The beginning of libbpf's struct bpf_test_run_opts. */
struct run_options {
	size_t size;
	const void *data_in;
	void *data_out;
	unsigned int data_size_in;
	unsigned int data_size_out;
	const void *ctx_in;
	void *ctx_out;
	unsigned int ctx_size_in;
};

int bpf_prog_test_run_opts(int fd, struct run_options *options)
{
	static int (*next)(int, struct run_options *);
	static const char frame[64];

	if (!next)
		next = (int (*)(int, struct run_options *))dlsym(RTLD_NEXT,
								 "bpf_prog_test_run_opts");
	if (options->data_size_in < 14) {
		options->data_in = frame;
		options->data_size_in = sizeof(frame);
		options->ctx_in = NULL;
		options->ctx_size_in = 0;
	}
	return next(fd, options);
}

int open(const char *path, int flags, ...)
{
	static int (*next)(const char *, int, int);
	va_list more;
	int mode;

	va_start(more, flags);
	mode = va_arg(more, int);
	va_end(more);
	if (!strncmp(path, "/dev/ptp", 8))
		return TAI_AS_DESCRIPTOR;
	if (!next)
		next = (int (*)(const char *, int, int))dlsym(RTLD_NEXT, "open");
	return next(path, flags, mode);
}

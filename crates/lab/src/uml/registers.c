/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * User-Mode Linux before 6.13 keeps 2696 bytes of a program's vector registers (linux v6.12
 * arch/x86/um/user-offsets.c:HOST_FP_SIZE). The host takes them back only whole (linux v6.12
 * arch/x86/kernel/fpu/regset.c:xstateregs_set), and on a CPU with AMX they are 11008 bytes: no
 * program starts. Preloaded into the machine's program this puts what is written into the whole
 * that the host has. What is missing are AMX's tiles, which nothing in the machine can use.
 *
 * Not here: on which hosts it is needed (registers.rs).
 */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 32768

static long to_kernel(long request, long pid, void *address, void *data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

static long set_registers(long pid, void *kind, struct iovec *part)
{
	static __thread char bytes[MOST];
	struct iovec whole = { bytes, sizeof(bytes) };

	if (to_kernel(PTRACE_GETREGSET, pid, kind, &whole) < 0)
		return -1;
	if (part->iov_len >= whole.iov_len)
		return to_kernel(PTRACE_SETREGSET, pid, kind, part);
	memcpy(bytes, part->iov_base, part->iov_len);
	return to_kernel(PTRACE_SETREGSET, pid, kind, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list more;
	long pid, result, word;
	void *address, *data;

	va_start(more, request);
	pid = va_arg(more, pid_t);
	address = va_arg(more, void *);
	data = va_arg(more, void *);
	va_end(more);
	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE)
		return set_registers(pid, address, data);
	/* As the C library has it: what is looked at is returned. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA ||
	    request == PTRACE_PEEKUSER) {
		result = to_kernel(request, pid, address, &word);
		if (result < 0)
			return result;
		errno = 0;
		return word;
	}
	return to_kernel(request, pid, address, data);
}

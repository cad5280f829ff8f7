// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A closed control loop in C++: in each cycle it takes the newest measured value that has come,
// computes, and sends a set value. The process that it controls is simulated by a second thread.
//
//     loop [VALUES] [CYCLE_US]
//
// Ends after so many cycles that had a new measured value.
//
// Both talk over UDP on the loopback interface; on a real network each is a program of its own.
//
// Not here: a real-time priority for the process, which `chrt -f 60` gives it.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "timewire.h"

namespace {

// The library's errors as exceptions; they never pass through a callback.
int checked(int result)
{
	if (result < 0)
		throw std::runtime_error(tw_last_error());
	return result;
}

class Transmitter {
public:
	explicit Transmitter(const std::string &to)
	{
		tw_transmitter_config config{};
		config.size = sizeof config;
		config.transport = TW_TRANSPORT_UDP;
		config.to = to.c_str();
		checked(tw_transmitter_open(&config, &handle_));
	}
	~Transmitter() { tw_transmitter_close(handle_); }
	Transmitter(const Transmitter &) = delete;
	Transmitter &operator=(const Transmitter &) = delete;

	void send(uint32_t stream, uint32_t seq, double value)
	{
		tw_probe probe{};
		probe.size = sizeof probe;
		probe.stream = stream;
		probe.seq = seq;
		probe.time_ns = tw_now();
		uint8_t *message = nullptr;
		constexpr size_t length = TW_PROBE_LEN + sizeof value;
		if (tw_transmitter_buffer(handle_, length, &message) == TW_ERROR_FULL)
			return; // the next cycle has a newer value anyway
		if (!message)
			throw std::runtime_error(tw_last_error());
		checked(tw_probe_write(message, length, &probe));
		std::memcpy(message + TW_PROBE_LEN, &value, sizeof value);
		checked(tw_transmitter_send(handle_, length, nullptr, TW_NO_LAUNCH, nullptr));
		checked(tw_transmitter_flush(handle_));
	}

private:
	tw_transmitter *handle_ = nullptr;
};

class Receiver {
public:
	Receiver()
	{
		tw_receiver_config config{};
		config.size = sizeof config;
		config.transport = TW_TRANSPORT_UDP;
		config.bind = "127.0.0.1:0";
		config.timestamps = TW_TIMESTAMP_SOFTWARE;
		checked(tw_receiver_open(&config, &handle_));
	}
	~Receiver() { tw_receiver_close(handle_); }
	Receiver(const Receiver &) = delete;
	Receiver &operator=(const Receiver &) = delete;

	std::string address() const
	{
		tw_address own{};
		char text[64];
		checked(tw_receiver_address(handle_, &own));
		checked(tw_address_format(&own, text, sizeof text));
		return text;
	}

	// The newest value that has come, or that comes within the time; false without one.
	bool newest(double &value, int64_t wait)
	{
		Newest newest{ false, 0.0, 0 };
		checked(tw_receiver_receive(handle_, wait, &Receiver::on_arrival, &newest));
		received_ += newest.count;
		if (newest.is_there)
			value = newest.value;
		return newest.is_there;
	}

	uint64_t received() const { return received_; }

private:
	struct Newest {
		bool is_there;
		double value;
		uint64_t count;
	};

	static void on_arrival(const tw_arrival *arrival, void *context)
	{
		auto *newest = static_cast<Newest *>(context);
		tw_probe probe{};
		probe.size = sizeof probe;
		if (arrival->captured < TW_PROBE_LEN + sizeof(double) ||
		    tw_probe_parse(arrival->bytes, arrival->captured, &probe) != 1)
			return;
		std::memcpy(&newest->value, arrival->bytes + TW_PROBE_LEN, sizeof(double));
		newest->is_there = true;
		newest->count++;
	}

	tw_receiver *handle_ = nullptr;
	uint64_t received_ = 0;
};

// What is controlled: it follows the set value with a delay.
void plant(Receiver &in, const std::string &to, const std::atomic<bool> &ends)
{
	Transmitter out(to);
	double state = 0.0, set = 0.0;
	for (uint32_t seq = 0; !ends; seq++) {
		if (!in.newest(set, 20'000'000))
			continue;
		state += 0.2 * (set - state);
		out.send(2, seq, state);
	}
}

// A thread that is told to end, also when this one leaves because of an error.
class Beside {
public:
	template <typename Work>
	explicit Beside(Work work) : thread_([this, work] { work(ends_); })
	{
	}
	~Beside() { end(); }
	Beside(const Beside &) = delete;
	Beside &operator=(const Beside &) = delete;

	void end()
	{
		ends_ = true;
		if (thread_.joinable())
			thread_.join();
	}

private:
	std::atomic<bool> ends_{ false };
	// After what it looks at.
	std::thread thread_;
};

int run(uint32_t cycles, int64_t cycle)
{
	constexpr double goal = 1.0;
	Receiver of_loop, of_plant;
	Transmitter out(of_plant.address());
	// One thread uses a receiver at a time: its address is asked for before the other begins.
	const std::string back = of_loop.address();
	Beside other([&](const std::atomic<bool> &ends) {
		try {
			plant(of_plant, back, ends);
		} catch (const std::exception &error) {
			std::fprintf(stderr, "error: plant: %s\n", error.what());
			std::exit(2);
		}
	});

	double measured = 0.0, sum = 0.0, set = 0.0;
	uint32_t silent = 0, updates = 0;
	int64_t next = tw_now() + cycle, latest = 0;
	for (uint32_t seq = 0; updates < cycles; seq++, next += cycle) {
		checked(tw_sleep_until(next, TW_SPIN_USUAL));
		int64_t late = tw_now() - next;
		latest = late > latest ? late : latest;
		// Without a new value the set value stays: the sum must not run away.
		if (of_loop.newest(measured, 0)) {
			silent = 0;
			updates++;
			sum += 0.02 * (goal - measured);
			set = 0.5 * (goal - measured) + sum;
		} else if (++silent == 5000) {
			std::fprintf(stderr, "error: nothing measured for 5000 cycles\n");
			break;
		}
		out.send(1, seq, set);
	}
	other.end();
	std::printf("received %llu latest_us %lld measured %.3f\n",
		    static_cast<unsigned long long>(of_loop.received()),
		    static_cast<long long>(latest / 1000), measured);
	return std::fabs(measured - goal) < 0.05 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
try {
	auto cycles = static_cast<uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000);
	int64_t cycle = (argc > 2 ? std::atoll(argv[2]) : 1000) * 1000;
	return run(cycles, cycle);
} catch (const std::exception &error) {
	std::fprintf(stderr, "error: %s\n", error.what());
	return 2;
}

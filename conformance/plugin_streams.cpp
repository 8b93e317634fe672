// Tests of a device's streams and events.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/plugin_device.h"
#include "mytorch/error.h"

namespace mytorch::conformance {

TestDevice::TestDevice(const std::string& path) : plugin_(path), ops_(plugin_.device()) {}

void TestDevice::need(int status, const char* what) {
  promise(status == MT_OK, std::string(what) + " failed with status " + std::to_string(status) +
                               ": " + Plugin::message());
}

void* TestDevice::stream() {
  if (!has_streams()) return nullptr;
  void* stream = ops_.create_stream(self(), 0, 0);
  promise(stream != nullptr, "create_stream returned NULL: " + Plugin::message());
  return stream;
}

void TestDevice::destroy(void* stream) {
  if (stream != nullptr && ops_.destroy_stream != nullptr) ops_.destroy_stream(self(), 0, stream);
}

void* TestDevice::allocate(size_t bytes, void* stream) {
  void* data = ops_.allocate(self(), 0, bytes, stream);
  promise(data != nullptr,
          std::to_string(bytes) + " bytes could not be allocated: " + Plugin::message());
  return data;
}

void TestDevice::release(void* data, size_t bytes, void* stream) {
  ops_.release(self(), 0, data, bytes, stream);
}

void TestDevice::copy(int kind, void* to, const void* from, size_t bytes, void* stream) {
  need(ops_.copy(self(), 0, kind, to, from, bytes, stream), "copy");
}

void TestDevice::synchronize(void* stream) {
  if (ops_.synchronize != nullptr) need(ops_.synchronize(self(), 0, stream), "synchronize");
}

std::string pattern(size_t bytes, unsigned seed) {
  std::string text(bytes, 0);
  uint32_t x = seed * 2654435761u + 1;
  for (char& c : text) {
    x = x * 1664525u + 1013904223u;
    c = static_cast<char>(x >> 24);
  }
  return text;
}

namespace {

constexpr size_t kLarge = size_t{4} << 20;  // large enough that other work could overtake the copy
// On a busy machine the queued work may be over before the host goes on, and a fault then does no
// harm: three rounds missed one in 1 of 60 runs.
constexpr unsigned kRounds = 30;

struct Streams {
  explicit Streams(const std::string& path) : device(path) {
    if (!device.has_streams()) throw Skipped{"the device has a single in-order queue"};
    first = device.stream();
    second = device.stream();
  }
  void* record(void* on) {
    void* event = device.ops().record_event(device.self(), 0, on);
    promise(event != nullptr, "record_event returned NULL: " + Plugin::message());
    return event;
  }
  void wait(void* on, void* event) {
    promise(device.ops().wait_event(device.self(), 0, on, event) == MT_OK, "wait_event fails");
  }
  void forget(void* event) { device.ops().destroy_event(device.self(), event); }
  bool is_done(void* event) {
    const int state = device.ops().query_event(device.self(), event);
    promise(state == 0 || state == 1, "query_event returned " + std::to_string(state));
    return state == 1;
  }
  TestDevice device;
  void* first;
  void* second;
};

// A chain of copies on one stream: the last block ends up with the bytes of the first.
struct Chain {
  Chain(Streams& s, void* stream, unsigned seed, size_t bytes = kLarge, int length = 5)
      : sent(std::make_shared<const std::string>(pattern(bytes, seed))) {
    for (int i = 0; i < length; ++i) {
      blocks.push_back(std::make_unique<Block>(s.device, bytes, stream));
    }
    s.device.copy(MT_COPY_TO_DEVICE, blocks[0]->data(), sent->data(), bytes, stream);
    for (size_t i = 1; i < blocks.size(); ++i) {
      s.device.copy(MT_COPY_ON_DEVICE, blocks[i]->data(), blocks[i - 1]->data(), bytes, stream);
    }
  }
  void* last() const { return blocks.back()->data(); }
  std::shared_ptr<const std::string> sent;  // must outlive the copies
  std::vector<std::unique_ptr<Block>> blocks;
};

void one_stream(const std::string& path) {
  Streams s(path);
  for (unsigned round = 0; round < kRounds; ++round) {
    const Chain chain(s, s.first, round);
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    s.device.synchronize(s.first);
    promise(got == *chain.sent,
            "the work of one stream does not run in order, or synchronize "
            "returns before it is done");
  }
}

void two_streams(const std::string& path) {
  Streams s(path);
  for (unsigned round = 0; round < kRounds; ++round) {
    const Chain chain(s, s.first, 100 + round);
    void* event = s.record(s.first);
    s.wait(s.second, event);
    s.forget(event);  // the queued wait keeps what it needs
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.second);
    s.device.synchronize(s.second);
    promise(got == *chain.sent,
            "a stream continues before the event for which it waits is complete");
  }
}

void host_waits(const std::string& path) {
  Streams s(path);
  for (unsigned round = 0; round < kRounds; ++round) {
    const Chain chain(s, s.first, 200 + round);
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    void* event = s.record(s.first);
    s.wait(nullptr, event);
    promise(got == *chain.sent,
            "the host continues before the event for which it waits is complete (wait_event with "
            "stream NULL)");
    if (s.device.ops().query_event != nullptr) {
      promise(s.is_done(event), "an event is not complete after a wait for it");
    }
    s.forget(event);
  }
}

void queries(const std::string& path) {
  Streams s(path);
  if (s.device.ops().query_event == nullptr) throw Skipped{"the device has no query_event"};
  void* early = s.record(s.first);
  s.device.synchronize(s.first);
  promise(s.is_done(early), "an event is not complete after its stream was synchronized");
  s.forget(early);
  for (unsigned round = 0; round < kRounds; ++round) {
    const Chain chain(s, s.first, 300 + round);
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    void* event = s.record(s.first);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!s.is_done(event)) {
      promise(std::chrono::steady_clock::now() < limit, "an event is not complete after 10 s");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    promise(got == *chain.sent, "an event is complete before the work queued ahead of it");
    s.forget(event);
  }
}

// Memory is released while queued work uses it, and another stream allocates at once.
void released_in_use(const std::string& path) {
  Streams s(path);
  const std::string other = pattern(kLarge, 500);
  for (unsigned round = 0; round < kRounds; ++round) {
    std::string got(kLarge, 0);
    std::shared_ptr<const std::string> sent;
    {
      const Chain chain(s, s.first, 400 + round, kLarge, 12);
      sent = chain.sent;
      s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    }
    std::vector<std::unique_ptr<Block>> others;
    for (int i = 0; i < 12; ++i) {
      others.push_back(std::make_unique<Block>(s.device, kLarge, s.second));
      s.device.copy(MT_COPY_TO_DEVICE, others.back()->data(), other.data(), kLarge, s.second);
    }
    s.device.synchronize(s.second);
    s.device.synchronize(s.first);
    promise(got == *sent, "memory in use by queued work was allocated to another stream");
  }
}

void many_streams(const std::string& path) {
  Streams s(path);
  std::vector<void*> streams;
  std::vector<std::string> got(16, std::string(4096, 0));
  std::vector<std::unique_ptr<Chain>> chains;
  for (unsigned i = 0; i < 16; ++i) {
    streams.push_back(s.device.stream());
    chains.push_back(std::make_unique<Chain>(s, streams[i], i, 4096, 20));
  }
  for (unsigned i = 0; i < 16; ++i) {
    s.device.copy(MT_COPY_TO_HOST, got[i].data(), chains[i]->last(), 4096, streams[i]);
  }
  for (unsigned i = 0; i < 16; ++i) {
    s.device.synchronize(streams[i]);
    promise(got[i] == *chains[i]->sent, "one of 16 streams has a wrong result");
  }
  chains.clear();
  for (void* stream : streams) s.device.destroy(stream);
}

}  // namespace

void add_stream_tests(std::vector<ContractTest>& tests) {
  tests.push_back({"stream-order", "work on one stream runs in order", one_stream});
  tests.push_back({"events", "a stream waits for an event of another stream", two_streams});
  tests.push_back({"host-waits", "the host waits for an event", host_waits});
  tests.push_back(
      {"event-queries", "an event completes after all earlier work of its stream", queries});
  tests.push_back({"released-in-use",
                   "released memory is not reused before queued work has finished",
                   released_in_use});
  tests.push_back({"many-streams", "many concurrent streams are independent", many_streams});
}

}  // namespace mytorch::conformance
